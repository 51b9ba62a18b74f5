//! What it takes to remember which names a reply has, until the client has answered it.

use std::hint::black_box;
use std::time::Instant;

use super::*;
use crate::protocol::reply_names::ReplyNames;

const NAMES: usize = 10_000;
const ROUNDS: usize = 21;

/// Prints figures for docs/record/performance.md: the time of a reply to a client that subscribes to 10,000 names, of remembering the names
/// alone, and of its ACK. The reply has all names or one, and the client may reject another resource meanwhile.
#[test]
#[ignore = "means something only in a release build, and alone"]
fn figures_of_names_per_ack() {
    let all: Vec<_> = (0..NAMES).map(|number| format!("cluster-{number:05}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &all, &[]);
    for rejects in [false, true] {
        if rejects {
            world.subscribe(CDS, &["rejected"], &[]);
            world.set(CDS, "rejected", "1");
            let nonce = world.take_replies().unwrap();
            world.answer(CDS, &[], nonce, Some("no"));
        }
        for changed in [NAMES, 1] {
            let mut times: [Vec<Duration>; 3] = Default::default();
            for round in 0..ROUNDS {
                let content = format!("{rejects} {changed} {round}");
                let upsert = |name: &&str| {
                    let resource = world.resource(CDS, name, &content);
                    Update::Upsert { kind: world.kind(CDS), class: Class::Named, key: (*name).into(), resource }
                };
                let updates = all[..changed].iter().map(upsert).collect();
                world.apply(updates);
                let mut sent = 0;
                let mut took = [Duration::ZERO; 3];
                loop {
                    let began = Instant::now();
                    let Some(reply) = world.poll() else { break };
                    took[0] += began.elapsed();
                    sent += reply.resources.len();
                    let began = Instant::now();
                    black_box(ReplyNames::of(reply.resources.iter().map(|resource| &resource.name)));
                    took[1] += began.elapsed();
                    let ack = world.made(CDS, &[], &[], &reply.nonce.to_string(), None);
                    let began = Instant::now();
                    let answer = world.session.on_request(ack, world.now);
                    took[2] += began.elapsed();
                    assert!(matches!(answer, Some(Ack::Ack { .. })), "{answer:?}");
                }
                assert_eq!(sent, changed);
                times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
            }
            let [reply, names, ack] = times.map(|mut times| {
                times.sort();
                format!("{:?} ({:?} to {:?})", times[ROUNDS / 2], times[0], times[ROUNDS - 1])
            });
            let while_rejecting = if rejects { ", while another is rejected" } else { "" };
            println!("{changed} of {NAMES} names{while_rejecting}: reply {reply}, its names {names}, ACK {ack}");
        }
    }
}
