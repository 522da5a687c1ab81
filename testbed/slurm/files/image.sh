#!/bin/bash
# image.sh: makes the image of all machines of the cluster, as root in a container. Environment: RAY, its version.
set -euo pipefail
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
apt-get -q update
apt-get install -y -q --no-install-recommends slurm-wlm slurm-wlm-basic-plugins slurm-client slurmdbd slurm-wlm-mysql-plugin libpam-slurm-adopt munge mariadb-server \
  openssh-server openssh-client lmod python3-virtualenv less rsync iputils-ping
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /usr/share/doc/* /usr/share/man/* /var/lib/mysql/* /etc/munge/munge.key /etc/ssh/ssh_host_*

# The site's wheels, for `pip install --no-index`, and an environment made of them.
export PIP_CONFIG_FILE=/tmp/pip.conf
python3 -m venv /opt/ray
/opt/ray/bin/pip download -q --only-binary=:all: -d /opt/wheelhouse "ray[default,train,tune,serve]==$RAY" pip setuptools wheel
export PIP_CONFIG_FILE=/dev/null
/opt/ray/bin/pip install -q --no-cache-dir --no-compile --no-index --find-links /opt/wheelhouse "ray[default,train,tune,serve]==$RAY"
printf '[global]\nfind-links = /opt/wheelhouse\ndisable-pip-version-check = true\n' >/etc/pip.conf

install -m 755 /files/avail_wheels /usr/local/bin/
cp -r /files/modules /opt/modules
echo /opt/modules >/etc/lmod/modulespath

uid=2001
for user in ada bob; do useradd -u $uid -s /bin/bash -M "$user"; usermod -p '*' "$user"; uid=$((uid + 1)); done

mkdir -p /run/sshd /etc/slurm /var/log/slurm /var/spool/slurmd /var/lib/slurm/ctld /localscratch
chown slurm: /var/log/slurm /var/lib/slurm /var/lib/slurm/ctld
chmod 1777 /localscratch
cat >/etc/ssh/sshd_config <<'C'
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM yes
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
MaxStartups 100
Subsystem sftp internal-sftp
C
# No logind here, and no capability to raise limits.
sed -i '/pam_systemd/d' /etc/pam.d/common-session
sed -i '/pam_limits\|pam_motd\|pam_mail\|pam_loginuid\|pam_keyinit\|pam_nologin/d' /etc/pam.d/sshd
