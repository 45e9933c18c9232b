import assert from "node:assert/strict";
import { test } from "node:test";
import { type Configuration, loadConfiguration } from "./configuration.ts";
import { shownConfiguration } from "./shown-configuration.ts";

const BOARD = { memoryBytes: 536_870_912, cpus: 4, maxPids: 4000, ephemeralStorageBytes: 2 ** 33 };

function load(text: string): Configuration {
  const result = loadConfiguration(text, "board", BOARD);
  assert.ok(result.ok, JSON.stringify(result));
  return result.configuration;
}

const FULL = `
hub: {server: "https://hub.example", caFile: /ca, token: abcdef.0123456789abcdef, proxy: "http://u:secret@q:2", reconnectBackoff: {max: 2m}}
staticPodURL: https://pods.example
staticPodURLHeader: {Authorization: [secret-one, secret-two]}
containerLogMaxSize: 3Mi
cpuCFSQuotaPeriod: 5ms
shutdownGracePeriod: 1h
evictionSoft: {memory.available: 30%}
evictionSoftGracePeriod: {memory.available: 1m30s}
registerWithTaints: [{key: a, effect: NoSchedule}]
`;

test("it is shown as a file has it, in the order of the names, and without secrets", () => {
  const shown = shownConfiguration(load(`${FULL}wasm: {proxy: {httpsProxy: "http://u:secret@secret@p:1"}}`));
  assert.deepEqual(Object.keys(shown), Object.keys(shown).toSorted());
  assert.equal(shown.containerLogMaxSize, "3Mi");
  assert.equal(shown.cpuCFSQuotaPeriod, "5ms");
  assert.equal(shown.shutdownGracePeriod, "1h0m0s");
  assert.equal(shown.syncFrequency, "1m0s");
  assert.deepEqual(shown.evictionSoftGracePeriod, { "memory.available": "1m30s" });
  assert.deepEqual(shown.kubeReserved, { memory: "128Mi", pid: "400" });
  assert.deepEqual(shown.staticPodURLHeader, { Authorization: ["***", "***"] });
  const hub = shown.hub as Readonly<Record<string, unknown>>;
  assert.equal(hub.token, "***");
  assert.equal(hub.proxy, "http://***@q:2");
  assert.deepEqual(hub.reconnectBackoff, { initial: "1s", max: "2m0s" });
  assert.equal((shown.wasm as Readonly<Record<string, unknown>>).maxComponentSize, "32Mi");
  assert.deepEqual((shown.wasm as Readonly<Record<string, unknown>>).proxy, { httpsProxy: "http://***@p:1" });
  assert.doesNotMatch(JSON.stringify(shown), /secret(?!sAtRest)|0123456789abcdef/);
});

test("what is shown is taken again, and means the same", () => {
  for (const text of ["", FULL.replace(/token: abc.*q:2", /, ""), "memoryManagerPolicy: None"]) {
    const configuration = load(text);
    const { staticPodURLHeader: _, ...shown } = shownConfiguration(configuration);
    assert.deepEqual(
      { ...load(JSON.stringify(shown)), staticPodURLHeader: 0 },
      { ...configuration, staticPodURLHeader: 0 },
    );
  }
});
