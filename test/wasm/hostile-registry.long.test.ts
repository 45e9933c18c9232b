/** Registries that lie, stall, lead in circles or send bombs: one clear error each, and nothing of it in use. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { describeError } from "@picolet/protocol/errors.ts";
import { artifact, descriptorOf, digestOf, imageOf, indexOf, sha256 } from "../support/unit/images/oci-content.ts";
import { padded } from "../support/unit/images/padded-component.ts";
import { ScriptedRegistry, sendBlob } from "../support/unit/images/scripted-registry.ts";
import { makeTar } from "../support/unit/images/tar.ts";
import { settled } from "../support/unit/ports/settled.ts";
import { testComponent } from "../support/wasm/components.ts";
import { PullBench, QUICK_PULLS } from "../support/wasm/pull-bench.ts";

const NEVER = new AbortController().signal;
const component = readFileSync(await testComponent("workload.c"));
const ID = digestOf(component);
/** Larger than what one read of a socket takes, so that a connection can be lost in its middle. */
const large = padded(component, 2_000_000);
const LARGE_ID = digestOf(large);

async function benchWith(context: TestContext, content = component, pullLimits = {}): Promise<PullBench> {
  const bench = await PullBench.create({ pullLimits: { ...QUICK_PULLS, ...pullLimits } });
  context.after(() => bench[Symbol.asyncDispose]());
  bench.registry.add(artifact(content), [content], "1");
  return bench;
}

/** Answers for blobs in another way than a registry does. */
function answerBlobs(bench: PullBench, answer: (response: ServerResponse, range: string | undefined) => unknown): void {
  bench.registry.intercept = ({ url = "", headers }, response) => {
    if (!url.includes("/blobs/")) return false;
    answer(response, headers.range);
    return true;
  };
}

function nothingInUse(bench: PullBench): void {
  assert.deepEqual([bench.files("components"), bench.files("images"), bench.files("tmp")], [[], [], []]);
}

test("content that is not what its digest says is refused, and is gone", async (context) => {
  const bench = await benchWith(context);
  const changed = Buffer.from(component);
  changed[changed.length - 1] = (changed.at(-1) ?? 0) ^ 1;
  answerBlobs(bench, (response) => sendBlob(response, changed, undefined));
  await bench.refuses("app:1", "corrupt", new RegExp(`gave ${digestOf(changed)} in the place of ${ID}`));
  assert.deepEqual(bench.files("pulls"), []);
  nothingInUse(bench);
});

test("a manifest that is not what its digest says is refused, asked for by digest, by an index, or by its header", async (context) => {
  const bench = await benchWith(context);
  const manifest = artifact(component);
  const fake = { ...manifest, content: manifest.content.replace("2", "3") };
  bench.registry.add(fake, [], "fake");
  bench.registry.add(indexOf([{ document: manifest }]), [], "index");
  for (const name of ["app:fake", "app:index", `app@${manifest.digest}`]) {
    await bench.refuses(name, "corrupt", /the registry gave sha256:\w+ in the place of sha256:/);
  }
  nothingInUse(bench);
});

test("more bytes than the manifest says are not taken, whether their number is told or not", async (context) => {
  const bench = await benchWith(context);
  const more = Buffer.concat([component, Buffer.alloc(1_000_000)]);
  const lies: ((response: ServerResponse) => void)[] = [
    (response) => response.writeHead(200, { "content-length": more.length }).end(more),
    (response) => response.writeHead(200).end(more),
  ];
  for (const lie of lies) {
    answerBlobs(bench, lie);
    await bench.refuses("app:1", "corrupt", new RegExp(`the registry sends \\d+ bytes and more of ${ID}`));
  }
  nothingInUse(bench);
});

test("fewer bytes than the manifest says are not waited for without end", async (context) => {
  const bench = await benchWith(context);
  bench.registry.add(artifact(component, { size: component.length + 5_000 }), [component], "1");
  await bench.refuses("app:1", "corrupt", /the registry has \d+ bytes of .*, which should have \d+/);
  // Nor where their number is not told: each connection ends too early, and there is nothing behind what came.
  answerBlobs(bench, (response, range) => {
    if (range === undefined) response.writeHead(200).end(component);
    else response.writeHead(416).end();
  });
  await bench.refuses("app:1", "unavailable", /ended the blob too early|has nothing behind/);
  nothingInUse(bench);
});

test("a layer of 300 MB is refused before it is asked for, and so is one that only begins to be so large", async (context) => {
  const bench = await benchWith(context);
  const size = 300_000_000;
  bench.registry.add(artifact(component, { size }), [], "honest");
  const image = imageOf([gzipSync(makeTar({ "a.wasm": component }))]).manifest;
  const manifest = JSON.parse(image.content);
  manifest.layers[0].size = size;
  const content = JSON.stringify(manifest);
  bench.registry.add({ ...image, content, digest: digestOf(content) }, [], "image");
  await bench.refuses(
    "app:honest",
    "resource_exhausted",
    /the component has 300000000 bytes, more than the \d+ of wasm.maxComponentSize/,
  );
  await bench.refuses("app:image", "resource_exhausted", /the image has 300000000 bytes/);
  assert.ok(!bench.registry.requests.some((each) => each.includes("/blobs/")));
  // Its manifest says little: the stream is cut off at the first byte too many.
  let sent = 0;
  answerBlobs(bench, (response) => {
    response.writeHead(200).write(component);
    const send = (): void => {
      while (!response.destroyed && sent < size) {
        sent += 65_536;
        if (!response.write(Buffer.alloc(65_536))) return void response.once("drain", send);
      }
    };
    send();
  });
  await bench.refuses("app:1", "corrupt", /the registry sends \d+ bytes and more of/);
  assert.ok(sent < 20_000_000, `${sent} bytes were sent`);
  nothingInUse(bench);
});

test("a connection that is lost is taken up where it was, as often as it takes", async (context) => {
  const bench = await benchWith(context, large);
  let connections = 0;
  answerBlobs(bench, (response, range) => {
    connections += 1;
    const start = Number(/\d+/.exec(range ?? "0")?.[0]);
    const piece = large.subarray(start, start + 300_000);
    const isLast = start + piece.length === large.length;
    const total = { "content-length": large.length - start };
    if (start === 0) response.writeHead(200, total);
    else response.writeHead(206, { ...total, "content-range": `bytes ${start}-${large.length - 1}/${large.length}` });
    response.write(piece, () => (isLast ? response.end() : response.destroy()));
  });
  assert.equal((await bench.pull("app:1")).id, LARGE_ID);
  assert.ok(connections >= 7, `${connections} connections`);
});

test("a registry without ranges, with other ranges, or with none left is begun anew with", async (context) => {
  const answers: Record<string, (response: ServerResponse) => void> = {
    whole: (response) => sendBlob(response, large, undefined),
    other: (response) =>
      response.writeHead(206, { "content-range": `bytes 0-9/${large.length}` }).end(large.subarray(0, 10)),
    none: (response) => response.writeHead(416).end(),
  };
  for (const [name, answer] of Object.entries(answers)) {
    const bench = await benchWith(context, large);
    let isFirst = true;
    answerBlobs(bench, (response, range) => {
      if (range !== undefined) return answer(response);
      const cut = isFirst;
      isFirst = false;
      if (!cut) return sendBlob(response, large, undefined);
      response.writeHead(200, { "content-length": large.length });
      response.write(large.subarray(0, 700_000), () => response.destroy());
    });
    assert.equal((await bench.pull("app:1")).id, LARGE_ID, name);
    assert.ok(
      bench.registry.requests.some((each) => each.includes("bytes=")),
      name,
    );
  }
});

/** Ways of a registry to take for ever, and what is said of each. */
const SLOW: Readonly<Record<string, readonly [text: RegExp, answer: (bench: PullBench, every: Every) => void]>> = {
  drips: [
    /sends next to nothing/,
    (bench, every) =>
      answerBlobs(bench, (response, range) => {
        let at = Number(/\d+/.exec(range ?? "0")?.[0]);
        const how = at === 0 ? {} : { "content-range": `bytes ${at}-` };
        response.writeHead(at === 0 ? 200 : 206, { ...how, "content-length": component.length - at });
        every(() => response.write(component.subarray(at, ++at)));
      }),
  ],
  stops: [
    /has stopped sending/,
    (bench) =>
      answerBlobs(
        bench,
        (response) => void response.writeHead(200, { "content-length": component.length }).flushHeaders(),
      ),
  ],
  "answers nothing": [/did not answer in time/, (bench) => answerBlobs(bench, () => undefined)],
  "drips its manifest": [
    /did not answer in time/,
    ({ registry }, every) => {
      registry.intercept = (_, response) => {
        response.writeHead(200, { "content-length": 10_000 });
        every(() => response.write(" "));
        return true;
      };
    },
  ],
  "hangs up": [
    /the connection was/,
    ({ registry }) => {
      registry.intercept = (request) => Boolean(request.socket.destroy());
    },
  ],
};
type Every = (act: () => void) => void;
const DRIP_INTERVAL_MS = 50;
/** Twenty drips, so that a busy machine is not taken for a registry that stops. */
const IMPATIENT = { ...QUICK_PULLS, idleTimeoutMs: 1_000, documentTimeoutMs: 3_000 };

test("one that hangs, drips, or answers nothing is given up, as a registry that cannot be reached", async (context) => {
  const timers = new Set<NodeJS.Timeout>();
  context.after(() => timers.forEach(clearInterval));
  const every = (act: () => void): void => void timers.add(setInterval(act, DRIP_INTERVAL_MS));
  const givenUp = async ([text, answer]: (typeof SLOW)[string]): Promise<void> => {
    const bench = await benchWith(context, component, IMPATIENT);
    answer(bench, every);
    await bench.refuses("app:1", "unavailable", text);
    nothingInUse(bench);
  };
  await Promise.all(Object.values(SLOW).map(givenUp));
});

/** One that takes every request and answers none, with images that are being pulled from it. */
async function silentRegistry(context: TestContext, bench: PullBench, images: number): Promise<ScriptedRegistry> {
  const silent = await ScriptedRegistry.start();
  const stop = new AbortController();
  silent.intercept = () => true;
  const asked = silent.untilAsked();
  const pulls = Array.from({ length: images }, (_, index) =>
    bench.adapter.images.pull(`${silent.address}/app-${index}:1`, {}, stop.signal),
  );
  context.after(async () => {
    stop.abort();
    await Promise.allSettled(pulls);
    await silent[Symbol.asyncDispose]();
  });
  for (const pull of pulls) pull.catch(() => undefined);
  await asked;
  return silent;
}

test("a silent registry does not hold up another one's pulls, however many of its images are wanted", async (context) => {
  const bench = await benchWith(context);
  await silentRegistry(context, bench, 5);
  assert.equal((await bench.pull("app:1")).id, ID);
});

test("several silent registries hold up another one's pulls until they have been silent for long enough", async (context) => {
  const bench = await benchWith(context, component, { contendedTimeoutMs: 300 });
  for (let count = 0; count < 4; count += 1) await silentRegistry(context, bench, 2);
  // On a machine with much to do it is taken for a silent one itself, and tried again as every pull is.
  const pulled = async (): Promise<string> =>
    bench.pull("app:1").then(
      ({ id }) => id,
      (error: unknown) => {
        assert.match(describeError(error), /sent next to nothing for \d+ s, and pulls from other registries wait/);
        return pulled();
      },
    );
  assert.equal(await pulled(), ID);
});

test("registries that send just enough hold up another one's pulls for a time, and theirs go on where they were", async (context) => {
  const bench = await benchWith(context, component, { contendedLimitMs: 2_000 });
  const timers = new Set<NodeJS.Timeout>();
  context.after(() => timers.forEach(clearInterval));
  const slow = await Promise.all(Array.from({ length: 3 }, () => ScriptedRegistry.start()));
  context.after(() => Promise.all(slow.map((each) => each[Symbol.asyncDispose]())));
  for (const registry of slow) {
    registry.add(artifact(large), [large], "1");
    registry.intercept = ({ url = "", headers }, response) => {
      if (!url.includes("/blobs/")) return false;
      let at = Number(/\d+/.exec(headers.range ?? "0")?.[0]);
      const range = { "content-range": `bytes ${at}-${large.length - 1}/${large.length}` };
      response.writeHead(at === 0 ? 200 : 206, { ...(at === 0 ? {} : range), "content-length": large.length - at });
      const drip = (): void => {
        response.write(large.subarray(at, at + 4_000));
        at += 4_000;
      };
      timers.add(setInterval(drip, DRIP_INTERVAL_MS));
      return true;
    };
  }
  const asked = Promise.all(slow.map((each) => each.untilAsked()));
  const nameOf = ({ address }: ScriptedRegistry): string => `${address}/app:1`;
  const stop = new AbortController();
  const pulls = slow.map((each) => bench.adapter.images.pull(nameOf(each), {}, stop.signal));
  const cut = Promise.any(
    pulls.map(async (pull, index) => {
      const reason: unknown = await pull.then(
        () => assert.fail("it was pulled"),
        (error: unknown) => error,
      );
      assert.match(describeError(reason), /is slow, and pulls from other registries wait/);
      return slow[index] as ScriptedRegistry;
    }),
  );
  await asked;
  assert.equal((await bench.pull("app:1")).id, ID);
  const registry = await cut;
  stop.abort();
  await Promise.allSettled(pulls);
  registry.intercept = () => false;
  assert.equal((await bench.adapter.images.pull(nameOf(registry), {}, NEVER)).id, LARGE_ID);
  assert.match(registry.requests.at(-1) ?? "", /bytes=[1-9]\d*-$/);
});

test("redirects are followed without the credentials, but not in circles and not to what is no address", async (context) => {
  const bench = await benchWith(context);
  const storage = await benchWith(context);
  const credentials = { username: "me", password: "secret", serverAddress: "" };
  bench.registry.intercept = ({ url = "", headers }, response) => {
    if (headers.authorization === undefined) {
      response.writeHead(401, { "www-authenticate": 'Basic realm="x"' }).end();
      return true;
    }
    if (url.includes("/blobs/"))
      response.writeHead(307, { location: `http://${storage.registry.address}${url}` }).end();
    return url.includes("/blobs/");
  };
  assert.equal((await bench.pull("app:1", { credentials })).id, ID);
  assert.deepEqual(storage.registry.authorizations, [undefined]);
  assert.ok(bench.registry.authorizations.includes(`Basic ${Buffer.from("me:secret").toString("base64")}`));
  const targets: readonly [location: string, text: RegExp][] = [
    ["/v2/app/manifests/2", /redirects more than 5 times/],
    ["http://[", /redirects to what is no URL/],
    ["ftp://127.0.0.1/x", /redirects to ftp:.*not encrypted/],
  ];
  for (const [location, text] of targets) {
    bench.registry.intercept = (_, response) => Boolean(response.writeHead(302, { location }).end());
    await bench.refuses("app:2", "failed", text);
  }
});

test("whoever a registry redirects to is told no credentials, whatever he asks for", async (context) => {
  const bench = await benchWith(context);
  const thief = await benchWith(context);
  const credentials = { username: "me", password: "secret", serverAddress: "" };
  bench.registry.intercept = ({ url = "" }, response) => {
    if (url.includes("/blobs/")) response.writeHead(307, { location: `http://${thief.registry.address}${url}` }).end();
    return url.includes("/blobs/");
  };
  for (const challenge of [`Bearer realm="http://${thief.registry.address}/token"`, 'Basic realm="x"']) {
    const { length } = thief.registry.requests;
    thief.registry.intercept = (_, response) =>
      Boolean(response.writeHead(401, { "www-authenticate": challenge }).end());
    await bench.refuses(
      "app:1",
      "permission_denied",
      new RegExp(`${thief.registry.address} does not let this node in`),
      {
        credentials,
      },
    );
    assert.deepEqual(thief.registry.requests.slice(length), [`GET /v2/app/blobs/${ID}`]);
  }
  assert.deepEqual(new Set([...thief.registry.authorizations, ...bench.registry.authorizations]), new Set([undefined]));
  nothingInUse(bench);
});

test("documents larger than 4 MiB, indexes without end, and manifests without number are refused", async (context) => {
  const bench = await benchWith(context);
  const manifest = artifact(component);
  const huge = JSON.stringify({ layers: [], padding: "x".repeat(5_000_000) });
  bench.registry.add({ content: huge, mediaType: "", digest: digestOf(huge) }, [], "huge");
  await bench.refuses("app:huge", "resource_exhausted", /larger than 4194304 bytes/);
  let inner = indexOf([{ document: manifest }]);
  for (let depth = 0; depth < 5; depth += 1) {
    bench.registry.add(inner);
    inner = indexOf([{ document: inner }]);
  }
  bench.registry.add(inner, [], "deep");
  await bench.refuses("app:deep", "invalid", /indexes lead to indexes more than 3 times/);
  const digest = digestOf("itself");
  const itself = JSON.stringify({ manifests: [descriptorOf("itself", "application/vnd.oci.image.index.v1+json")] });
  bench.registry.add({ content: itself, mediaType: "", digest }, [], "itself");
  bench.registry.intercept = ({ url = "" }, response) => {
    if (url.endsWith("itself")) return Boolean(response.end(itself));
    return false;
  };
  await bench.refuses("app:itself", "corrupt", /in the place of/);
  bench.registry.intercept = () => false;
  const images = Array.from({ length: 40 }, (_, index) => imageOf([], { architecture: `a${index}` }).manifest);
  for (const each of images) bench.registry.add(each);
  bench.registry.add(indexOf(images.map((document) => ({ document }))), [], "many");
  await bench.refuses("app:many", "resource_exhausted", /more than 32 manifests/);
  nothingInUse(bench);
});

test("what becomes a thousand times as large is not taken out of its layer", async (context) => {
  const bench = await benchWith(context);
  const files = { "zero.bin": Buffer.alloc(100_000_000), "a.wasm": component };
  const bombs = { file: gzipSync(makeTar(files)), headers: gzipSync(Buffer.alloc(200_000_000, 1)) };
  const inside = gzipSync(makeTar({ "a.wasm": Buffer.alloc(40_000_000) }));
  for (const [tag, layer] of Object.entries({ ...bombs, inside })) {
    const { manifest, blobs } = imageOf([layer]);
    bench.registry.add(manifest, blobs, tag);
  }
  await bench.refuses("app:file", "resource_exhausted", /\d+ compressed bytes become \d+ and more/);
  await bench.refuses("app:headers", "corrupt", /cannot read the tar archive/);
  await bench.refuses("app:inside", "resource_exhausted", /compressed bytes become|the component has/);
  nothingInUse(bench);
});

test("what an earlier pull left is not believed: it is verified, and come by anew when it is wrong", async (context) => {
  const bench = await benchWith(context, large);
  const half = large.subarray(0, 1_000_000);
  const folder = bench.runtime.folder.at("root", "pulls");
  const written = (): string => `${folder}/${readdirSync(folder)[0]}/${sha256(large)}`;
  answerBlobs(bench, async (response, range) => {
    if (range !== undefined || bench.files("pulls").length === 0) return void response.writeHead(404).end();
    response.writeHead(200, { "content-length": large.length }).write(half);
    // A lost connection may lose any part of the data that has come and is not written yet.
    await settled(() => (statSync(written()).size < half.length ? ["half of it"] : []));
    response.destroy();
  });
  await bench.refuses("app:1", "not_found", /has no blob/);
  assert.deepEqual(bench.files("pulls"), [sha256(large)]);
  const path = written();
  // Not by what tells their differences: of so many bytes that takes all the memory that there is.
  assert.ok(readFileSync(path).equals(half), `${statSync(path).size} bytes`);
  // As after a power cut: as long as it was, and zeroes in its middle.
  writeFileSync(path, Buffer.concat([half.subarray(0, 500_000), Buffer.alloc(500_000)]));
  bench.registry.intercept = () => false;
  assert.equal((await bench.pull("app:1")).id, LARGE_ID);
  const blobs = bench.registry.requests.filter((each) => each.includes("/blobs/")).slice(-2);
  assert.deepEqual(blobs, [`GET /v2/app/blobs/${LARGE_ID} bytes=1000000-`, `GET /v2/app/blobs/${LARGE_ID}`]);
});
