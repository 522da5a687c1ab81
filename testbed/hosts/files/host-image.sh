# host-image.sh: makes an Ubuntu root look like a rented machine on its first boot. Runs once, in the image that is being made.
useradd -m -s /bin/bash -u 1000 cc
echo 'cc ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/90-cloud-init-users; chmod 440 /etc/sudoers.d/90-cloud-init-users
install -d -m 700 -o cc -g cc /home/cc/.ssh
: >/etc/machine-id; : >/etc/default/locale
rm -f /etc/ssh/ssh_host_* /etc/pip.conf

# journalctl -u ssh has `Starting session:` lines only at this level
printf 'PasswordAuthentication no\nUseDNS no\nLogLevel VERBOSE\n' >/etc/ssh/sshd_config.d/10-cloud.conf
systemctl enable ssh.service
systemctl disable ssh.socket || true
# What has no sense, or reaches the machine outside: systemd-sysctl writes the kernel's own values there.
systemctl mask getty.target console-getty.service systemd-udevd.service systemd-udev-trigger.service systemd-resolved.service systemd-networkd.service \
  systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer dev-hugepages.mount sys-fs-fuse-connections.mount systemd-modules-load.service \
  systemd-logind.service systemd-sysctl.service systemd-networkd-wait-online.service cloud-init-hotplugd.socket || true

# Keys are cloud-init's to make (or to take from its user data). This is for a machine whose cloud-init failed.
cat >/etc/systemd/system/hostkeys.service <<'UNIT'
[Unit]
Description=SSH host keys, when cloud-init made none
After=cloud-init.service
Before=ssh.service
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key
[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A
[Install]
WantedBy=multi-user.target
UNIT
systemctl enable hostkeys.service

# `locale: false`: cloud-init would want to install a package for it, and end in an error.
cat >/etc/cloud/cloud.cfg.d/99-testbed.cfg <<'CFG'
datasource_list: [NoCloud, ConfigDrive, None]
network: {config: disabled}
preserve_hostname: true
manage_etc_hosts: false
locale: false
apt: {preserve_sources_list: true}
system_info:
  default_user: {name: cc, lock_passwd: true, shell: /bin/bash, sudo: ["ALL=(ALL) NOPASSWD:ALL"]}
CFG
install -m 755 /files/vm-init /usr/sbin/vm-init
# The stand-in of modprobe, also where the whole path is used.
dpkg-divert --local --add --rename --divert /usr/sbin/modprobe.kmod /usr/sbin/modprobe
install -m 755 /files/modprobe /usr/sbin/modprobe
install -d /etc/standin /usr/lib/standin-nvidia /var/lib/standin
