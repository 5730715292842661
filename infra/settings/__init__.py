"""Settings: `REELABEL_*` variables, over files of secrets, over `reelabel.toml`, over defaults.

A setting is named by its section and field: `store.uri` is `REELABEL_STORE_URI` in the environment, `uri` under
`[store]` in the file (`./reelabel.toml`, or the path in `REELABEL_CONFIG`), and the file `reelabel_store_uri` in the
folder `REELABEL_SECRETS_DIR`, such as /run/secrets. The string below a field describes it.
"""

from infra.settings.describe import DescribeOptions as DescribeOptions
from infra.settings.describe import DescribeSettings as DescribeSettings
from infra.settings.load import CONFIG_VARIABLE as CONFIG_VARIABLE
from infra.settings.load import SECRETS_VARIABLE as SECRETS_VARIABLE
from infra.settings.load import Settings as Settings
from infra.settings.load import load_settings as load_settings
from infra.settings.load import secret_variables as secret_variables
from infra.settings.load import variable_of as variable_of
from infra.settings.model import MaxTokens as MaxTokens
from infra.settings.model import ModelSettings as ModelSettings
from infra.settings.model import PromptOptions as PromptOptions
from infra.settings.model import ServerSettings as ServerSettings
from infra.settings.model import VideoPruningRate as VideoPruningRate
from infra.settings.monitoring import MetricsSettings as MetricsSettings
from infra.settings.monitoring import NotifySettings as NotifySettings
from infra.settings.results import ResultsSettings as ResultsSettings
from infra.settings.results import RetentionSettings as RetentionSettings
from infra.settings.runs import CostSettings as CostSettings
from infra.settings.runs import ExtractSettings as ExtractSettings
from infra.settings.runs import NightlySettings as NightlySettings
from infra.settings.runs import RunSettings as RunSettings
from infra.settings.runs import ShardSettings as ShardSettings
from infra.settings.runs import WatchSettings as WatchSettings
from infra.settings.sampling import ChunkOptions as ChunkOptions
from infra.settings.sampling import SamplingOptions as SamplingOptions
from infra.settings.sampling import SamplingSettings as SamplingSettings
from infra.settings.serve import LiveSettings as LiveSettings
from infra.settings.serve import ServeSettings as ServeSettings
from infra.settings.services import DatabaseSettings as DatabaseSettings
from infra.settings.services import PrefectSettings as PrefectSettings
from infra.settings.services import StoreSettings as StoreSettings
from infra.settings.services import WebSettings as WebSettings
