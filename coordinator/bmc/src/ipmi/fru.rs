//! A computer's maker, model and serial number, of its FRU data (IPMI Platform Management FRU Information Storage Definition v1.0).
//! Pure.

/// What the data says; empty where it says nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) manufacturer: String,
    pub(super) model: String,
    pub(super) serial: String,
}

/// The bytes that [`areas`] needs.
pub(super) const HEADER: usize = 8;

/// Where the board's and the product's areas begin, of the common header (8): in bytes, 0 where there is none.
pub(super) fn areas(header: &[u8]) -> Option<(usize, usize)> {
    let header: &[u8; HEADER] = header.first_chunk()?;
    let is_right = header[0] & 0x0f == 1 && sum(header) == 0;
    is_right.then(|| (usize::from(header[3]) * 8, usize::from(header[4]) * 8))
}

/// The length of an area, of its first bytes.
pub(super) fn length(area: &[u8]) -> Option<usize> {
    Some(usize::from(*area.get(1)?) * 8)
}

/// The product's area (12): maker, name, part number, version, serial number.
pub(super) fn product(area: &[u8]) -> Option<Product> {
    let fields = fields(area, 3)?;
    let field = |at: usize| fields.get(at).cloned().unwrap_or_default();
    Some(Product { manufacturer: field(0), model: field(1), serial: field(4) })
}

/// The board's area (11), three bytes of its date before the fields: maker, name, serial number.
pub(super) fn board(area: &[u8]) -> Option<Product> {
    let fields = fields(area, 6)?;
    let field = |at: usize| fields.get(at).cloned().unwrap_or_default();
    Some(Product { manufacturer: field(0), model: field(1), serial: field(2) })
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte))
}

/// The fields from `at` on, up to the end mark. One that is no text is empty.
fn fields(area: &[u8], at: usize) -> Option<Vec<String>> {
    let area = area.get(..length(area)?).filter(|area| sum(area) == 0)?;
    let mut rest = area.get(at..)?;
    let mut found = Vec::new();
    while let Some((kind, behind)) = rest.split_first() {
        // "No more fields" (13).
        if *kind == 0xc1 {
            break;
        }
        let (field, behind) = behind.split_at_checked(usize::from(kind & 0x3f))?;
        found.push(text(kind >> 6, field));
        rest = behind;
    }
    Some(found)
}

fn text(kind: u8, bytes: &[u8]) -> String {
    // Latin-1; the packed ones are rare, and those of numbers of no use.
    let latin = |kind| kind == 3;
    let text: String = bytes.iter().filter(|_| latin(kind)).map(|byte| char::from(*byte)).collect();
    text.trim_matches(|c: char| c.is_whitespace() || c.is_control()).chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(fields: &[u8]) -> Vec<u8> {
        let mut area = vec![1, 0, 0];
        area.extend_from_slice(fields);
        area.push(0xc1);
        area.resize(area.len().next_multiple_of(8).max(8), 0);
        if area[area.len() - 1] != 0 {
            area.resize(area.len() + 8, 0);
        }
        area[1] = u8::try_from(area.len() / 8).unwrap();
        let last = area.len() - 1;
        area[last] = 0u8.wrapping_sub(sum(&area));
        area
    }

    #[test]
    fn a_product_is_read_and_a_damaged_one_is_not() {
        let area = area(b"\xc4ACME\xc6Anvil \x01\x07\xc0\xc3A-1");
        let read = product(&area).unwrap();
        assert_eq!((read.manufacturer.as_str(), read.model.as_str(), read.serial.as_str()), ("ACME", "Anvil", "A-1"));
        for at in 0..area.len() {
            let mut damaged = area.clone();
            damaged[at] ^= 1;
            assert_eq!(product(&damaged), None, "{at}");
            assert_eq!(product(&area[..at]), None, "{at}");
        }
    }

    #[test]
    fn a_header_says_where_the_areas_are() {
        assert_eq!(areas(&[1, 0, 0, 1, 9, 0, 0, 0xf5]), Some((8, 72)));
        assert_eq!((areas(&[1, 0, 0, 1, 9, 0, 0, 0xf4]), areas(&[1])), (None, None));
    }
}
