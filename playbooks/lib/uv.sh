# Functions for uv, which installs in a third of pip's time.

# Downloads uv into the folder $2 with the pip of the environment $1, and hands pip's settings on to it. It reads none of
# them itself, so it is used only where all of those that lead to packages can be handed on.
fetch_uv() {
  settings=$("$1/bin/python" -m pip config list) || return 1
  while IFS="=" read -r name value; do
    value=${value#?}
    value=${value%?}
    case $name in
      *.index-url) export UV_DEFAULT_INDEX="$value" ;;
      *.cert) export SSL_CERT_FILE="$value" ;;
      *.find-links) export UV_FIND_LINKS="$value" ;;
      "" | *timeout | *.retries | *.cache-dir | *.no-cache-dir | *.disable-pip-version-check | *.no-input | *.progress-bar | *.quiet) ;;
      *.no-color | *.no-python-version-warning | *.root-user-action | *.break-system-packages | *.require-virtualenv) ;;
      *) return 1 ;;
    esac
  done <<SETTINGS
$settings
SETTINGS
  "$1/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --no-input --quiet --retries 0 \
    --timeout 5 --only-binary :all: --target "$2" "uv>=0.5" >/dev/null 2>&1
}
