"""The manifests against Kubernetes' own schemas, and the jobs that Prefect's worker creates from its templates."""

import asyncio
import contextlib
import importlib
import itertools
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from uuid import uuid4

import kubernetes_validate
import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound

from infra.embedded import export
from infra.settings import ShardSettings, load_settings

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "infra" / "kubernetes"
POOLS = yaml.safe_load((FOLDER / "pools.yaml").read_text())
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS = [
    pytest.param(manifest, id=f"{manifest['kind']} {manifest['metadata']['name']}")
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text())
    for manifest in (document["items"] if document["kind"] == "List" else [document])
]
POD_OWNERS = [each for each in MANIFESTS if each.values[0]["kind"] in {"Deployment", "Job"}]

WORKERS = [each for each in POD_OWNERS if each.values[0]["metadata"]["name"].endswith("-worker")]


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_follows_the_schema_and_names_no_namespace(manifest):
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    assert "namespace" not in manifest["metadata"]


@pytest.mark.parametrize("manifest", POD_OWNERS)
def test_no_pod_runs_as_root_or_can_gain_root(manifest):
    _assert_confined(manifest["spec"]["template"]["spec"])


@pytest.mark.parametrize("manifest", [each for each in POD_OWNERS if each.values[0]["kind"] == "Deployment"])
def test_long_running_pods_have_probes_and_limits(manifest):
    [container] = manifest["spec"]["template"]["spec"]["containers"]

    ports = {port["name"] for port in container["ports"]}
    assert container["livenessProbe"]["httpGet"]["port"] in ports
    assert container["startupProbe"]["httpGet"]["port"] in ports
    assert "memory" in container["resources"]["limits"]


def test_settings_secrets_and_pools_are_created_under_the_names_in_use():
    generated = {entry["name"] for kind in ("configMapGenerator", "secretGenerator") for entry in KUSTOMIZATION[kind]}
    files = [path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml"]
    reference = re.compile(r"(?:secretRef|configMapRef|configMap)\"?:\s*\{\s*\"?name\"?:\s*\"?([\w-]+)")
    used = {name for path in files for name in reference.findall(path.read_text())}

    assert used == generated
    for entry in KUSTOMIZATION["secretGenerator"]:
        assert all((FOLDER / f"{name}.example").exists() for name in entry["envs"])
    for entry in KUSTOMIZATION["configMapGenerator"]:
        assert all((FOLDER / name).exists() for name in (*entry.get("files", ()), *entry.get("envs", ())))


def test_long_running_pods_restart_when_settings_or_secrets_change_and_jobs_refer_to_them_by_name():
    entries = [entry for kind in ("configMapGenerator", "secretGenerator") for entry in KUSTOMIZATION[kind]]
    fixed = {entry["name"] for entry in entries if entry.get("options", {}).get("disableNameSuffixHash")}
    used = defaultdict(set)
    for [manifest] in (each.values for each in POD_OWNERS):
        used[manifest["kind"]] |= _sources(manifest["spec"]["template"]["spec"])
    for pool in ("cpu", "gpu"):
        job = POOLS[pool]["job_configuration"]["job_manifest"]
        used["Job"] |= _sources(job["spec"]["template"]["spec"])

    assert not KUSTOMIZATION.get("generatorOptions")
    assert used["Job"] <= fixed
    assert used["Deployment"]
    assert not used["Deployment"] & fixed


def test_decoding_is_separate_from_the_gpus_and_metrics_can_be_scraped(monkeypatch):
    lines = [line for line in (FOLDER / "settings.env").read_text().splitlines() if line and line[0] != "#"]
    for name, _, value in (line.partition("=") for line in lines):
        monkeypatch.setenv(name, value)
    settings = load_settings()

    assert (settings.run.executor, settings.prefect.work_pool) == ("remote", "cpu")
    assert settings.metrics.host == "0.0.0.0"
    for pool in ("cpu", "gpu"):
        job = POOLS[pool]["job_configuration"]["job_manifest"]
        [container] = job["spec"]["template"]["spec"]["containers"]
        assert {"name": "metrics", "containerPort": settings.metrics.port} in container["ports"]
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        assert annotations == {"prometheus.io/scrape": "true", "prometheus.io/port": str(settings.metrics.port)}


def test_only_the_preparation_has_the_login_that_owns_the_tables():
    owners = {
        entry["name"]
        for entry in KUSTOMIZATION["secretGenerator"]
        for name in entry["envs"]
        if "REELABEL_DATABASE_OWNER_URL=" in (FOLDER / f"{name}.example").read_text()
    }
    users = {
        path.name
        for path in (*FOLDER.glob("*.yaml"), *FOLDER.glob("*.json"))
        if path.name != "kustomization.yaml" and any(name in path.read_text() for name in owners)
    }

    assert owners
    assert users == {"prepare.yaml"}


def test_nothing_is_prepared_without_a_model():
    [job] = yaml.safe_load_all((FOLDER / "prepare.yaml").read_text())
    [container] = job["spec"]["template"]["spec"]["containers"]

    assert {"name": "REQUIRED_VARIABLES", "value": "REELABEL_MODEL_NAME"} in container["env"]
    assert re.search(r"^REELABEL_MODEL_NAME=$", (FOLDER / "settings.env").read_text(), re.MULTILINE)


def test_the_service_is_found_where_it_listens_guarded_and_scaled_by_its_requests(monkeypatch):
    service, deployment, scaler = yaml.safe_load_all((FOLDER / "service.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    for line in (FOLDER / "service-secrets.env.example").read_text().splitlines():
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            monkeypatch.setenv(name, value * (16 if value in {"HEX", "TOKEN"} else 1))
    monkeypatch.setenv("REELABEL_SERVE_LOAD", container["env"][0]["value"])
    settings = load_settings().serve
    options = dict(itertools.pairwise(container["args"]))
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    [metric] = [each["pods"] for each in scaler["spec"]["metrics"]]

    assert container["args"][:2] == ["reelabel", "serve"]
    assert (options["--host"], int(options["--port"])) == ("0.0.0.0", ports["http"])
    assert settings.token is not None
    assert settings.load == ("classify", "analyze")
    assert "REELABEL_SERVE_TOKEN" in container["env"][1]["value"]
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] == "http"
    assert container["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert pod["terminationGracePeriodSeconds"] > settings.stop_timeout_s
    _assert_weights_are_kept(pod)
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert metric["metric"]["name"] == "reelabel_requests_under_way"
    assert 0 < int(metric["target"]["averageValue"]) < settings.max_requests


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")  # Ray's own, when it is imported
def test_the_service_on_ray_is_an_application_of_this_version_with_these_settings(monkeypatch):
    import ray  # noqa: PLC0415 - by this test alone
    from ray.serve.schema import ServeDeploySchema  # noqa: PLC0415

    ray_service, _ = yaml.safe_load_all((FOLDER / "ray.yaml").read_text())
    cluster = ray_service["spec"]["rayClusterConfig"]
    [worker] = cluster["workerGroupSpecs"]
    [application] = ServeDeploySchema(**yaml.safe_load(ray_service["spec"]["serveConfigV2"])).applications
    for file in ("settings.env", "service-secrets.env.example"):
        for line in (FOLDER / file).read_text().splitlines():
            if line and line[0] != "#":
                name, _, value = line.partition("=")
                monkeypatch.setenv(name, value * (16 if value in {"HEX", "TOKEN"} else 1))
    for variable in worker["template"]["spec"]["containers"][0]["env"]:
        monkeypatch.setenv(variable["name"], variable["value"])
    module, _, name = application.import_path.partition(":")
    built = getattr(importlib.import_module(module), name)(application.args)

    assert cluster["rayVersion"] == ray.__version__
    assert {each.name for each in application.deployments} <= _deployments(built)
    assert _deployments(built) == {"Ingress", "Decoder", "Engine"}
    assert worker["replicas"] == worker["minReplicas"] <= worker["maxReplicas"]
    assert cluster["autoscalerOptions"]["securityContext"]["allowPrivilegeEscalation"] is False
    assert cluster["authOptions"] == {"mode": "token"}


def _deployments(application):
    """Return the names of an application's deployments."""
    own = application._bound_deployment
    return {own.name}.union(*(_deployments(each) for each in own.init_args if isinstance(each, type(application))))


def test_the_pods_of_the_service_on_ray_follow_the_schema_are_confined_and_reached_by_their_own():
    ray_service, policy = yaml.safe_load_all((FOLDER / "ray.yaml").read_text())
    cluster = ray_service["spec"]["rayClusterConfig"]
    head, worker = cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]

    kubernetes_validate.validate(policy, "1.37", strict=True)
    for name, template in (("head", head), ("worker", worker)):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name} | template["metadata"]}
        kubernetes_validate.validate(pod | {"spec": template["spec"]}, "1.37", strict=True)
        _assert_confined(template["spec"])
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert _sources(template["spec"]) == {"reelabel-settings", "ray-secrets"}
    _assert_weights_are_kept(worker["spec"])
    assert worker["spec"]["terminationGracePeriodSeconds"] > load_settings().serve.stop_timeout_s


def test_names_that_kustomize_does_not_see_are_fixed():
    """A RayService is applied by itself, and a kustomization changes no names within it."""
    ray_service, _ = yaml.safe_load_all((FOLDER / "ray.yaml").read_text())
    entries = [entry for kind in ("configMapGenerator", "secretGenerator") for entry in KUSTOMIZATION[kind]]
    fixed = {entry["name"] for entry in entries if entry.get("options", {}).get("disableNameSuffixHash")}

    assert _sources(ray_service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]) <= fixed


@pytest.mark.parametrize("pool", ["cpu", "gpu"])
def test_a_worker_fills_the_template_to_a_job_that_the_schema_accepts(pool, prefect_api):  # noqa: ARG001
    from prefect_kubernetes.worker import KubernetesWorkerJobConfiguration  # noqa: PLC0415 - slow, and rarely needed

    template = POOLS[pool]
    flow_run = FlowRun(id=uuid4(), name="some-run", flow_id=uuid4())

    async def configured():
        async with get_client() as client:
            return await KubernetesWorkerJobConfiguration.from_template_and_values(
                template, {"env": {"PYTHONSAFEPATH": "1"}, "node_selector": {"zone": "a"}}, client=client
            )

    configuration = asyncio.run(configured())
    configuration.prepare_for_flow_run(flow_run)
    job = configuration.job_manifest
    pod = job["spec"]["template"]["spec"]
    kubernetes_validate.validate(job, "1.37", strict=True)
    _assert_confined(pod)
    [container] = pod["containers"]
    assert container["args"] == ["prefect", "flow-run", "execute"]
    assert {"name": "PYTHONSAFEPATH", "value": "1"} in container["env"]
    assert pod["nodeSelector"] == {"zone": "a"}
    assert pod["terminationGracePeriodSeconds"] > ShardSettings().lease_s
    assert "ephemeral-storage" in container["resources"]["requests"]
    if pool == "gpu":
        _assert_weights_are_kept(pod)
    # Without a quota, a flow run would decode on all cores of its node.
    assert container["resources"]["limits"]["cpu"] == container["resources"]["requests"]["cpu"]
    assert container["resources"]["limits"].get("nvidia.com/gpu") == (1 if pool == "gpu" else None)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_watches_only_the_namespace_of_its_role(worker, monkeypatch):
    from prefect_kubernetes.settings import KubernetesSettings  # noqa: PLC0415 - slow, and rarely needed

    [container] = worker["spec"]["template"]["spec"]["containers"]
    of_the_pod = {each["name"]: each["valueFrom"]["fieldRef"] for each in container["env"] if "valueFrom" in each}
    [variable] = [name for name, field in of_the_pod.items() if field == {"fieldPath": "metadata.namespace"}]
    monkeypatch.setenv(variable, "videos")

    assert KubernetesSettings().observer.namespaces == {"videos"}


@pytest.fixture
def client(prefect_api):  # noqa: ARG001 - where it is
    """A client of a server without our two pools."""

    def clear():
        for name in ("cpu", "gpu"):
            with contextlib.suppress(ObjectNotFound):
                client.delete_work_pool(name)

    with get_client(sync_client=True) as client:
        clear()
        yield client
        clear()


@pytest.mark.system
@pytest.mark.xdist_group("prefect")
def test_the_preparation_creates_the_pools_in_its_own_namespace(prefect_services, client, tmp_path):
    [job] = yaml.safe_load_all((FOLDER / "prepare.yaml").read_text())
    [container] = job["spec"]["template"]["spec"]["containers"]
    shell, option, script = container["args"]
    here = script.replace("/tmp/", f"{tmp_path}/").replace("/pools/", f"{FOLDER}/")
    here = here.replace("python ", f"{sys.executable} -P ").replace(
        "reelabel ", f"{sys.executable} -P -m flows.cli.main "
    )
    here = here.replace("prefect ", f"{sys.executable} -P -m prefect ")
    names = {"NAMESPACE": "videos", "REELABEL_PREFECT_WORK_POOL": "cpu", "REELABEL_RUN_EXECUTOR": "remote"}

    environment = os.environ | export(prefect_services) | names
    completed = subprocess.run(
        [shell, option, here], env=environment, capture_output=True, text=True, timeout=500, check=False
    )

    assert completed.returncode == 0, completed.stdout + completed.stderr
    pools = [client.read_work_pool(name) for name in ("cpu", "gpu")]
    assert {pool.type for pool in pools} == {"kubernetes"}
    variables = [pool.base_job_template["variables"]["properties"] for pool in pools]
    assert [each["namespace"]["default"] for each in variables] == ["videos", "videos"]


def _sources(pod):
    """Return the names of the config maps and secrets that a pod gets."""
    [container] = pod["containers"]
    environment = {reference["name"] for source in container["envFrom"] for reference in source.values()}
    return environment | {volume["configMap"]["name"] for volume in pod.get("volumes", ()) if "configMap" in volume}


def _assert_weights_are_kept(pod):
    claims = [
        each.values[0]["metadata"]["name"] for each in MANIFESTS if each.values[0]["kind"] == "PersistentVolumeClaim"
    ]
    [volume] = [each for each in pod["volumes"] if "persistentVolumeClaim" in each]
    [mount] = [each for each in pod["containers"][0]["volumeMounts"] if each["name"] == volume["name"]]

    assert [volume["persistentVolumeClaim"]["claimName"]] == claims
    assert f"HF_HOME={mount['mountPath']}" in (ROOT / "infra/docker/Dockerfile").read_text()


def _assert_confined(pod):
    assert pod["securityContext"]["runAsNonRoot"]
    for container in pod["containers"]:
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
