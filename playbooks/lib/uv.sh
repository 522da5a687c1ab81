# Functions for uv, which installs in a third of pip's time.

# The one that is downloaded: no other is run. The digests are of its packages for Linux: x86_64 and aarch64, with glibc
# and with musl.
uv_version=0.13.9
uv_digests="
    d7f459fe4fd247d830351c75686d3996ace3c6f3f728eb0e85a30b7ada0cef19
    5435c5ce14a56431208ca0996416d310f1598e8c2c8ba707688985a16bb82dbe
    ecb6028d79dc96fbeafffe5c8af62a7099487ebc05a701e76714eebcffd06375
    2c45530751517d6c3bbc69a19473f6effe47cce047bede01ffd8af7ea7b36b25"

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
  {
    printf 'uv==%s' "$uv_version"
    for digest in $uv_digests; do printf ' --hash=sha256:%s' "$digest"; done
    echo
  } >"$2.txt"
  "$1/bin/python" -m pip install --no-cache-dir --disable-pip-version-check --no-input --quiet --retries 0 \
    --timeout 5 --only-binary :all: --no-deps --require-hashes --target "$2" --requirement "$2.txt" >/dev/null 2>&1
}
