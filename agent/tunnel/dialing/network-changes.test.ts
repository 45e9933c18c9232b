import assert from "node:assert/strict";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { isCancelled } from "@picolet/protocol/errors.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { defaultRoutes, isLocalIn, networkFingerprint, SystemNetworkChanges } from "./network-changes.ts";

const IPV4 = `Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
cni0\t0000F40A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
tun0\t00000000\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0
`;
const ZERO = "0".repeat(32);
const IPV6 = `${ZERO} 00 ${ZERO} 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     eth0
fe800000000000000000000000000000 40 ${ZERO} 00 ${ZERO} 00000100 00000001 00000000 00000001 vethab12
${ZERO} 00 ${ZERO} 00 ${ZERO} ffffffff 00000001 00000000 00200200       lo
`;

test("default routes are those to everywhere; half of the world, pods' networks and the kernel's refusal are none", () => {
  assert.deepEqual(defaultRoutes(IPV4, IPV6), ["eth0 0101A8C0", "eth0 fd000000000000000000000000000001"]);
  assert.deepEqual(defaultRoutes("", ""), []);
  assert.deepEqual(defaultRoutes("garbage\n\n\t\t", "garbage\n"), []);
});

const TRIE = `Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     |-- 10.1.2.30
        /32 link UNICAST
     |-- 10.1.2.3
        /32 link BROADCAST
Local:
  +-- 10.1.2.0/24 2 0 1
     |-- 10.1.2.3
        /32 link BROADCAST
        /32 host LOCAL
     |-- 10.1.2.255
        /32 link BROADCAST
  |-- 127.0.0.1
     /32 host LOCAL
`;

test("an address is the machine's own where its leaf says so, in whichever table, not where another one's does", () => {
  for (const own of ["10.1.2.3", "127.0.0.1"]) assert.equal(isLocalIn(TRIE, own), true, own);
  for (const other of ["10.1.2.30", "10.1.2.255", "0.0.0.0", "0.1.2.3", "10.1.2", ""])
    assert.equal(isLocalIn(TRIE, other), false, other);
});

test("this machine's network can be looked at, and stays the same when nothing happens", () => {
  assert.equal(networkFingerprint(), networkFingerprint());
});

test("a change is seen within three seconds, and nobody looks after it was told", async () => {
  const clock = new VirtualClock();
  let looks = 0;
  let network = "a";
  const changes = new SystemNetworkChanges(clock, () => {
    looks += 1;
    return network;
  });
  let hasChanged = false;
  const waiting = changes.changed(new AbortController().signal).then(() => {
    hasChanged = true;
  });
  await clock.advance(seconds(60));
  assert.deepEqual([hasChanged, looks], [false, 21]);
  network = "b";
  await clock.advance(seconds(3));
  await waiting;
  assert.equal(clock.sleeping, 0);
});

test("an address of this machine is not lost, in whatever form; another one is, within ten seconds", async () => {
  const clock = new VirtualClock();
  const changes = new SystemNetworkChanges(clock);
  const stop = new AbortController();
  const own = Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));
  const kept = [...own, "::ffff:127.0.0.1", ""].map((address) => changes.lost(address, stop.signal));
  const lost = changes.lost("192.0.2.7", stop.signal);
  await clock.advance(seconds(60));
  await lost;
  stop.abort();
  for (const each of kept) await assert.rejects(each, isCancelled);
});
