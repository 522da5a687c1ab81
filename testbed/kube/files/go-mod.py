# go-mod.py VERSION: prints a go.mod with Kubernetes as a dependency. Its own go.mod replaces its libraries by folders
# of its source tree, which `go install` refuses; here they are the published ones of the same version.
import json, subprocess, sys

version = sys.argv[1]
library = "v0." + version.split(".", 1)[1]
module = json.loads(subprocess.check_output(["go", "mod", "download", "-json", "k8s.io/kubernetes@" + version]))
its = json.loads(subprocess.check_output(["go", "mod", "edit", "-json", module["GoMod"]]))
print(f"module k8all\n\ngo {its['Go']}\n\nrequire k8s.io/kubernetes {version}")
for one in its["Require"]:
    path, wanted = one["Path"], one["Version"]
    if wanted == "v0.0.0" and path.startswith("k8s.io/"):
        wanted = library
        print(f"replace {path} => {path} {library}")
    print(f"require {path} {wanted}" + (" // indirect" if one.get("Indirect") else ""))
