//! An installed system that says at its start what it finds.

/// A script for the action `exec`: at its first start the new system runs `script`, once `target` is reached, and each line
/// that this prints is on the console. By way of the kernel: what is written to the console's own device is lost while a getty
/// hangs it up.
pub(super) fn at_start(script: &str, target: &str) -> String {
    format!(
        r#"
cat > /usr/local/sbin/says <<'END'
{script}
END
cat > /etc/systemd/system/says.service <<'END'
[Unit]
Wants={target}
After={target}
[Service]
Type=oneshot
ExecStart=/bin/sh -c "/bin/sh /usr/local/sbin/says 2>&1 | while read -r line; do echo \"$line\" > /dev/kmsg; done"
[Install]
WantedBy=multi-user.target
END
systemctl enable says.service
"#
    )
}
