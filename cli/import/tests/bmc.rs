//! Tables of machines: what each fault is called, and that what is written is what the rows say.

use landfall_api::{BootWay, Document, Kind};
use landfall_import::{CsvFile, Import, bmc};

/// The certificate's digest in documents.
const DIGEST: &str = "sha256:abababababababababababababababababababababababababababababababab";

/// Files with the names `1.csv`, `2.csv`, …: the documents, or the errors.
fn read(texts: &[&str], credentials: Option<&str>) -> Result<Import, Vec<String>> {
    let names: Vec<String> = (1..=texts.len()).map(|number| format!("{number}.csv")).collect();
    let files: Vec<CsvFile<'_>> =
        names.iter().zip(texts).map(|(name, text)| CsvFile { name, content: text.as_bytes() }).collect();
    let said = |problems: Vec<landfall_api::Problem>| {
        problems.iter().map(|p| format!("{}: {}; {}", p.subject, p.message, p.hint)).collect()
    };
    bmc(&files, credentials).map_err(said)
}

#[test]
fn every_fault_is_an_error_with_line_and_column() {
    let twice = "name,macs\na,52:54:00:00:00:01\n";
    let cases: &[(&[&str], &[&str])] = &[
        (&[""], &["1.csv:1: the file is empty; begin it with a row such as name,bmc"]),
        (&["name,macs\n"], &["1.csv:1: no machine follows the header"]),
        (&["a,52:54:00:00:00:01\n"], &["1.csv:1: the file has no header"]),
        (
            &["\nname,port\na,b\n"],
            &["1.csv:2 port: \"port\" is an unknown column", "1.csv:2 macs: the column macs is missing"],
        ),
        // A wrong header does not hide wrong rows.
        (
            &["name,macs,x\na,b,c\n"],
            &["1.csv:1 x: \"x\" is an unknown column", "1.csv:2 macs: \"b\" is not a MAC address"],
        ),
        (
            &["name,macs\na\na,b,c\n"],
            &["1.csv:2: the row has 1 cell, and the header has 2", "1.csv:3: the row has 3 cells"],
        ),
        (
            &["name,bmc,credentials,ip\na,192.0.2.7,s,192.0.2.20\n"],
            &["1.csv:2 ip: the row has no port that the address is for"],
        ),
        (
            &["name,bmc,credentials,macs,serial\na,192.0.2.7,s,,S1\n"],
            &["1.csv:2 macs: a machine needs at least one MAC address; list the addresses"],
        ),
        (&["name,macs,ways\na,52:54:00:00:00:01,pxeOnce\n"], &["1.csv:2 ways: there is no BMC that it belongs to"]),
        (&["name,macs,\na,52:54:00:00:00:01,x\n"], &["1.csv:2: there is a value in a column without a name"]),
        (&["hostname,mac\n,52:54:00:00:00:01\n"], &["1.csv:2 hostname: the machine has no name"]),
        (
            &["name,macs\nNode 1,\n"],
            &["1.csv:2 name: \"Node 1\" cannot be a name; use 1 to 63", "1.csv:2 macs: a machine needs at least"],
        ),
        (
            &["name,macs\na,01:00:5e:00:00:01\nb,52:54:00:00:00:02;52:54:00:00:00:02\n"],
            &["1.csv:2 macs: 01:00:5e:00:00:01 is a group address", "1.csv:3 macs: 52:54:00:00:00:02 is listed twice"],
        ),
        (
            &["name,macs\na,\"52:54:00:00:00:01\nb,52:54:00:00:00:02\n"],
            &["1.csv:2 macs: the cell has a line break; close the quote"],
        ),
        (
            &["name,macs,bmc,credentials,certificate,uuid,ip\na,52:54:00:00:00:01,h/?,s,x,x,x\n"],
            &[
                "1.csv:2 bmc: \"h/?\" is not the address", "1.csv:2 certificate:", "1.csv:2 uuid:",
                "1.csv:2 ip: \"x\" is not an IPv4",
            ],
        ),
        (
            &[
                "name,macs,bmc,credentials\na,52:54:00:00:00:01,h,No_1\nb,52:54:00:00:00:02,g,\nc,52:54:00:00:00:03,,s\n",
            ],
            &[
                "1.csv:2 credentials: \"No_1\" cannot be a secret's name",
                "1.csv:3 credentials: the BMC has no account; name a Secret",
                "1.csv:4 credentials: there is no BMC that it belongs to",
            ],
        ),
        // Of each row the same would be said.
        (
            &["name,macs,bmc\na,52:54:00:00:00:01,h\nb,52:54:00:00:00:02,g\n"],
            &["1.csv:1 credentials: the BMCs have no account; name a Secret with username and password in a column"],
        ),
        (
            &[
                "name,macs,bmc,credentials,certificate\na,52:54:00:00:00:01,ipmi://h,s,abababababababababababababababababababababababababababababababab\n",
            ],
            &["1.csv:2 certificate: ipmi:// has no certificate"],
        ),
        (&["name,macs,label.a b\na,52:54:00:00:00:01,x\n"], &["1.csv:2 label.a b: \"a b\" is not a label's name"]),
        (&["name,macs,ip\na,52:54:00:00:00:01,127.0.0.1\n"], &["1.csv:2 ip: 127.0.0.1 is not an address of a host"]),
        // The same file twice has each name twice.
        (&[twice, twice], &["2.csv:2 name: a stands twice, first at 1.csv:2; give it another name"]),
        (
            &[
                "name,macs,bmc,credentials,ip\na,52:54:00:00:00:01,h,s,192.0.2.1\n\nb,52:54:00:00:00:01,https://H:443/,s,192.0.2.1\n",
            ],
            &[
                "1.csv:4 macs: 52:54:00:00:00:01 also belongs to a, at 1.csv:2",
                "1.csv:4 bmc: redfish+https://h also belongs to a, at 1.csv:2",
                "1.csv:4 ip: 192.0.2.1 also belongs to a",
            ],
        ),
    ];
    for (texts, expected) in cases {
        let errors = read(texts, None).unwrap_err();
        assert_eq!(errors.len(), expected.len(), "{texts:?}: {errors:#?}");
        for (error, part) in errors.iter().zip(*expected) {
            assert!(error.starts_with(part), "{texts:?}: {error}");
        }
    }
}

#[test]
fn a_file_that_is_named_twice_has_each_machine_twice() {
    let file = CsvFile { name: "a.csv", content: b"name,macs\na,52:54:00:00:00:01\n" };
    let problems = bmc(&[file, file], None).unwrap_err();
    assert_eq!(problems.iter().map(|p| p.subject.as_str()).collect::<Vec<_>>(), ["a.csv:2 name"]);
}

#[test]
fn no_password_of_a_table_is_repeated() {
    for text in [
        "name,macs,bmc,username,password\na,x,https://root:hunter2@h,root,hunter2\n",
        "name,macs,bmc,username,password\na,x,root:hunter2@h\n",
        "name,macs,bmc,password\na,52:54:00:00:00:01,h,\"hunter2\n\"\n",
        "root,hunter2\n",
    ] {
        let errors = read(&[text], None).unwrap_err();
        assert!(!format!("{errors:?}").contains("hunter2"), "{errors:#?}");
    }
    let import = read(&["name,macs,password\na,52:54:00:00:00:01,hunter2\n"], None).unwrap();
    let said: Vec<String> = import.findings.iter().map(ToString::to_string).collect();
    assert!(said[0].starts_with("1.csv:1: the account in password is not taken") && !import.is_complete(), "{said:?}");
    assert!(!format!("{import:?}").contains("hunter2"));
    assert!(read(&["name,macs,password\na,52:54:00:00:00:01,\n"], None).unwrap().is_complete(), "an empty column");
}

#[test]
fn documents_say_what_the_rows_say() {
    let text = format!(
        "ip;UUID;Serial;certificate;credentials;bmc;macs;name;label.Site;management;maintenance;label.empty;ways\n\
         192.0.2.20;4C4C4544004235108052B4C04F4E4D32;null;{};own;h;\"52-54-00-00-00-0A;52:54:00:00:00:0b\";a;0x1F;external;yes;;\n\
         ;;;;;g;;b;;;;;\"ownOrder, PXEONCE\"\n\
         ;;;;;;52:54:00:00:00:0d;c;~;managed;FALSE;;\n",
        ["AB"; 32].join(":")
    );
    let import = read(&[&text], Some("shared")).unwrap();
    let read_back = Document::from_yaml_str("y", &import.to_yaml()).unwrap();
    let machines: Vec<_> = read_back
        .iter()
        .map(|sourced| match &sourced.document {
            Document::Machine(machine) => machine,
            other => panic!("{other:?}"),
        })
        .collect();
    let [a, b, c] = machines.as_slice() else { panic!("{machines:?}") };
    assert_eq!((a.kind, a.metadata.name.as_str()), (Kind::Machine, "a"));
    let labels: Vec<_> = a.metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("Site", "0x1F")]);
    let macs: Vec<String> = a.spec.identity.macs.iter().map(ToString::to_string).collect();
    assert_eq!(macs, ["52:54:00:00:00:0a", "52:54:00:00:00:0b"]);
    assert_eq!(a.spec.identity.serial.as_deref(), Some("null"));
    assert_eq!(a.spec.identity.smbios_uuid.unwrap().to_string(), "4c4c4544-0042-3510-8052-b4c04f4e4d32");
    assert_eq!((a.spec.management, a.spec.maintenance), (landfall_api::Management::External, true));
    assert_eq!(a.spec.reservations[0].address.to_string(), "192.0.2.20");
    assert_eq!(a.spec.reservations[0].mac, a.spec.identity.macs[0]);
    let bmc = a.spec.bmc.as_ref().unwrap();
    assert_eq!((bmc.credentials.as_str(), bmc.certificate.unwrap().to_string().as_str()), ("own", DIGEST));
    let bmc = b.spec.bmc.as_ref().unwrap();
    assert_eq!((bmc.address.to_string().as_str(), bmc.credentials.as_str()), ("redfish+https://g", "shared"));
    assert_eq!((bmc.ways.as_slice(), b.spec.identity.is_empty()), (&[BootWay::OwnOrder, BootWay::PxeOnce][..], true));
    assert_eq!((c.spec.bmc.as_ref(), c.metadata.labels["Site"].as_str()), (None, "~"));
    assert!(!c.spec.maintenance && c.spec.reservations.is_empty());
}
