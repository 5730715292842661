#!/bin/sh
# Reads secrets from files for Prefect, which only supports environment variables: if NAME_FILE is set, NAME is set to the
# content of that file. Refuses to start if one of REQUIRED_VARIABLES is empty. Then runs the command.
set -eu

for name in PREFECT_API_AUTH_STRING PREFECT_SERVER_API_AUTH_STRING PREFECT_API_DATABASE_CONNECTION_URL; do
  eval "file=\${${name}_FILE-}"
  [ -n "$file" ] || continue
  if [ ! -r "$file" ]; then
    echo "${name}_FILE: cannot read $file; mount it readable by user $(id -u)." >&2
    exit 2
  fi
  export "$name=$(cat "$file")"
  unset "${name}_FILE"
done

for name in ${REQUIRED_VARIABLES-}; do
  eval "value=\${${name}-}"
  if [ -z "$value" ]; then
    echo "$name is not set, and has no default here; set it in the environment of the containers." >&2
    exit 2
  fi
done

case "$*" in
  "prefect flow-run execute"*) cd "$(mktemp -d)" ;;  # Prefect copies the current folder, which may hold weights
esac
if [ "${REELABEL_LOG_FORMAT-}" = json ]; then
  export PREFECT_LOGGING_FORMATTERS_JSON_CLASS=infra.logs.JsonLines
  export PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER=json PREFECT_LOGGING_COLORS=false
fi
exec "$@"
