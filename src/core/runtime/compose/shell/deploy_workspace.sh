# Jupyter works in $workspace as user 1000 only: the folder must belong to that user and must not be a person's home.
if [ ! -d "$workspace" ]; then
    echo "workspace: there is no folder $workspace on this host"
    exit 1
fi
owner=$(stat -L -c %u "$workspace")
if [ "$owner" != 1000 ]; then
    echo "workspace: $workspace belongs to user $owner, and Jupyter is user 1000"
    exit 1
fi
if [ -e "$workspace/.ssh" ]; then
    echo "workspace: $workspace is somebody's home, with its keys in .ssh: use a folder inside it"
    exit 1
fi
