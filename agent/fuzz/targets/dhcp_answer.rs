//! A DHCP server's answer: every lease that is taken from it can be used.
#![no_main]

use landfall_agent_fuzz::dhcp_answer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| dhcp_answer(data));
