#!/bin/sh
# Generates the passwords that compose.yaml reads, in the folder `secrets` or the one given; existing files are kept.
# Containers read the files as another user, so access is restricted by the folder, not by the files.
set -eu

folder=${1:-secrets}
mkdir -p "$folder"
chmod 700 "$folder"
cd "$folder"

random() { od -An -N20 -tx1 /dev/urandom | tr -d ' \n'; }

once() {
  if [ ! -e "$1" ]; then
    printf '%s' "$2" > "$1"
    chmod 644 "$1"
  fi
}

once postgres_password "$(random)"
once reelabel_database_owner_url "postgresql://preparation:$(random)@postgres:5432/reelabel"
once reelabel_database_url "postgresql://runs:$(random)@postgres:5432/reelabel"
once reelabel_database_reader_url "postgresql://queries:$(random)@postgres:5432/reelabel"
once prefect_database_url "postgresql+asyncpg://prefect:$(random)@postgres:5432/prefect"
once reelabel_prefect_auth_string "admin:$(random)"
once reelabel_store_access_key_id "$(random)"
once reelabel_store_secret_access_key "$(random)"
once reelabel_store_mac_key "$(random)"
once s3_identities.json "$(
  cat << END
{"identities": [{"name": "reelabel", "actions": ["Admin"], "credentials": [{
  "accessKey": "$(cat reelabel_store_access_key_id)",
  "secretKey": "$(cat reelabel_store_secret_access_key)"}]}]}
END
)"
