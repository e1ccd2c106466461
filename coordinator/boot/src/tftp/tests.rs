//! The server over loopback.

use std::time::Duration;

use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

struct Server {
    address: SocketAddr,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<Result<(), TftpError>>,
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start(content: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(UEFI_LOADER), content).unwrap();
        std::fs::write(directory.path().join("secret"), b"secret").unwrap();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let path = directory.path().to_owned();
        let service =
            TftpService::start(listen, path, Ipv4Addr::LOCALHOST.into(), Neighbours::default()).await.unwrap();
        let cancel = CancellationToken::new();
        let address = service.local_addr().unwrap();
        let task = tokio::spawn(service.run(cancel.clone()));
        Self { address, cancel, task, _directory: directory }
    }

    async fn stop(self) {
        self.cancel.cancel();
        timeout(LIMIT, self.task).await.unwrap().unwrap().unwrap();
    }

    /// Reads a file as a client would; an error packet's text on refusal.
    async fn read(&self, request: &[u8]) -> Result<Vec<u8>, String> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        socket.send_to(request, self.address).await.unwrap();
        let (mut content, mut buffer, mut block) = (Vec::new(), [0; 2000], 512);
        let (mut last, mut repeated) = (0u16, 0);
        loop {
            let (n, from) = timeout(LIMIT, socket.recv_from(&mut buffer)).await.unwrap().unwrap();
            match buffer[1] {
                3 => {
                    let number = u16::from_be_bytes([buffer[2], buffer[3]]);
                    // The server repeats what was not acknowledged for half a second, as it should to a client on a loaded machine.
                    if number == last {
                        repeated += 1;
                    } else {
                        content.extend_from_slice(&buffer[4..n]);
                        last = number;
                    }
                    let ack = [[0, 4], number.to_be_bytes()].concat();
                    // Twice: a duplicate acknowledgement must not double the packets that follow.
                    socket.send_to(&ack, from).await.unwrap();
                    socket.send_to(&ack, from).await.unwrap();
                    if n - 4 < block {
                        assert!(repeated <= 2 + last / 4, "{repeated} of {last} blocks came twice");
                        return Ok(content);
                    }
                }
                6 => {
                    let text = String::from_utf8_lossy(&buffer[2..n]).into_owned();
                    let mut words = text.split('\0');
                    if words.any(|w| w == "blksize") {
                        block = words.next().unwrap().parse().unwrap();
                    }
                    socket.send_to(&[0, 4, 0, 0], from).await.unwrap();
                }
                _ => return Err(String::from_utf8_lossy(&buffer[4..n - 1]).into_owned()),
            }
        }
    }
}

#[tokio::test]
async fn files_arrive_whole_at_every_boundary() {
    for length in [0, 511, 512, 513, 1468 * 3, 200_000] {
        let content: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
        let server = Server::start(&content).await;
        assert_eq!(server.read(b"\0\x01snponly.efi\0octet\0").await.unwrap(), content, "{length}");
        let fast = b"\0\x01/snponly.efi\0octet\0blksize\x001468\0tsize\x000\0";
        assert_eq!(server.read(fast).await.unwrap(), content, "{length}");
        server.stop().await;
    }
}

#[tokio::test]
async fn nothing_but_loaders_is_served() {
    let server = Server::start(b"x").await;
    for path in ["secret", "../secret", "undionly.kpxe", "snponly.efi/../secret", "/etc/passwd"] {
        let request = [b"\0\x01".as_slice(), path.as_bytes(), b"\0octet\0"].concat();
        assert!(server.read(&request).await.is_err(), "{path}");
    }
    assert_eq!(server.read(b"\0\x02snponly.efi\0octet\0").await.unwrap_err(), "read-only");
    server.stop().await;
}

#[tokio::test]
async fn unacknowledged_requests_do_not_block_the_file() {
    let content: Vec<u8> = (0..50_000).map(|n| (n % 251) as u8).collect();
    let server = Server::start(&content).await;
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    for n in 0..20 * MAX_TRANSFERS {
        // A timeout that would keep each place for minutes, if it were heard.
        let sent = silent.send_to(b"\0\x01snponly.efi\0octet\0timeout\x00255\0", server.address).await;
        assert!(sent.is_ok(), "{n}");
    }
    let begun = std::time::Instant::now();
    // A client asks again, as firmware does.
    let read = loop {
        match timeout(Duration::from_secs(1), server.read(b"\0\x01snponly.efi\0octet\0blksize\x001468\0")).await {
            Ok(read) => break read.unwrap(),
            Err(_) => assert!(begun.elapsed() < LIMIT, "no client was served for {LIMIT:?}"),
        }
    };
    assert_eq!(read, content);
    server.stop().await;
}

#[tokio::test]
async fn another_mode_than_octet_is_refused_with_words() {
    let server = Server::start(b"loader").await;
    let refused = server.read(b"\0\x01snponly.efi\0netascii\0").await.unwrap_err();
    assert!(refused.contains("octet"), "{refused}");
    server.stop().await;
}
