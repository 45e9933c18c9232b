import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { PicoletError } from "@picolet/protocol/errors.ts";
import { type Millis, type PodUid, seconds } from "@picolet/protocol/ports.ts";
import type { ExecResult, RuntimeAdapter } from "@picolet/runtime-contract/runtime-adapter.ts";
import { desired, firstContainer, podOf } from "@picolet/test/support/unit/pods/sample-pods.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { HttpGetter } from "./http-getter.ts";
import { LifecycleHooks } from "./lifecycle-hooks.ts";

type Exec = (command: readonly string[], timeout: Millis, signal: AbortSignal) => Promise<ExecResult>;
type Handler = NonNullable<
  NonNullable<NonNullable<NonNullable<Parameters<typeof podOf>[0]>["containers"]>[number]["lifecycle"]>["preStop"]
>;

const UID = "11111111-2222-3333-4444-555555555555";
const WHERE = `for Container "app" in Pod "web_default(${UID})" failed - error:`;
const never = new AbortController().signal;
const ok: Exec = () => Promise.resolve({ exitCode: 0, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) });

async function run(
  handler: Handler,
  given: {
    readonly exec?: Exec;
    readonly signal?: AbortSignal;
    readonly clock?: VirtualClock;
    readonly podIps?: string[];
  } = {},
): Promise<string> {
  const pod = desired(
    podOf({ containers: [{ name: "app", image: "example/app:1", lifecycle: { preStop: handler } }] }),
  );
  const container = firstContainer(pod);
  const preStop = container.lifecycle?.preStop;
  assert.ok(preStop);
  const exec = given.exec ?? ok;
  const adapter = {
    execSync: (_: PodUid, __: string, command: readonly string[], timeout: Millis, signal: AbortSignal) =>
      exec(command, timeout, signal),
  } as unknown as RuntimeAdapter;
  const hooks = new LifecycleHooks({ clock: given.clock ?? new VirtualClock(), http: new HttpGetter() });
  const target = { pod, container, containerId: "app-0", podIps: given.podIps ?? ["127.0.0.1"], adapter };
  return await hooks.run(preStop, target, given.signal ?? never).then(
    () => "done",
    (error: PicoletError) => `${error.code}: ${error.message.replaceAll(/127\.0\.0\.1:\d+/g, "HERE")}`,
  );
}

test("exec: succeeds when the command does, else fails with the kubelet's text", async () => {
  const exec = { command: ["sh", "-c", 'echo "hi"'] };
  assert.equal(await run({ exec }), "done");
  const fails: Exec = () => Promise.resolve({ exitCode: 3, stdout: Buffer.from("out\n"), stderr: Buffer.from("err") });
  assert.equal(
    await run({ exec }, { exec: fails }),
    `failed: Exec lifecycle hook ([sh -c echo "hi"]) ${WHERE} command 'sh -c echo "hi"' exited with 3: err, message: "out\\nerr"`,
  );
  const refused: Exec = () =>
    Promise.reject(new PicoletError("unimplemented", "cannot exec into a WebAssembly component"));
  assert.equal(
    await run({ exec }, { exec: refused }),
    `failed: Exec lifecycle hook ([sh -c echo "hi"]) ${WHERE} cannot exec into a WebAssembly component, message: ""`,
  );
});

test("exec: a command that never returns ends with the signal, heeded or not", async () => {
  for (const heeds of [true, false]) {
    const stop = new AbortController();
    const hangs: Exec = (_, timeout, signal) => {
      assert.ok(timeout >= seconds(24 * 3600));
      setImmediate(() => stop.abort());
      return new Promise((_resolve, reject) => {
        if (heeds) signal.addEventListener("abort", () => reject(new PicoletError("unavailable", "cut off")));
      });
    };
    assert.equal(
      await run({ exec: { command: ["sleep"] } }, { exec: hangs, signal: stop.signal }),
      "cancelled: the hook was cancelled",
    );
  }
  assert.equal(
    await run({ exec: { command: ["x"] } }, { signal: AbortSignal.abort() }),
    "cancelled: the hook was cancelled",
  );
});

test("sleep: as long as it says, or until the signal", async () => {
  const clock = new VirtualClock();
  const slept = run({ sleep: { seconds: 5 } }, { clock });
  await clock.advance(seconds(5));
  assert.equal(await slept, "done");
  const stop = new AbortController();
  const cut = run({ sleep: { seconds: 5 } }, { clock, signal: stop.signal });
  stop.abort();
  assert.equal(await cut, "cancelled: the hook was cancelled");
});

test("tcpSocket does nothing and fails", async () => {
  assert.equal(
    await run({ tcpSocket: { port: 80, host: "here" } }),
    "failed: Cannot run handler: invalid handler: &LifecycleHandler{Exec:nil,HTTPGet:nil,TCPSocket:&TCPSocketAction{Port:{0 80 },Host:here,},Sleep:nil,}",
  );
});

test("httpGet: any answer is good; TLS is left out where the server has none", async () => {
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    seen.push(request);
    response.writeHead(request.url === "/missing" ? 404 : 200);
    response.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const httpHeaders = [
    { name: "Authorization", value: "secret" },
    { name: "X-A", value: "b" },
  ];
  try {
    assert.equal(await run({ httpGet: { port, path: "/missing", httpHeaders } }), "done");
    assert.equal(seen[0]?.headers.authorization, "secret");
    assert.equal(seen[0]?.headers["user-agent"], "kube-lifecycle/1.34");
    assert.equal(await run({ httpGet: { port, path: "/x", scheme: "HTTPS", httpHeaders } }), "done");
    assert.equal(seen[1]?.headers.authorization, undefined, "nothing secret without TLS");
    assert.equal(seen[1]?.headers["x-a"], "b");
    assert.equal(await run({ httpGet: { port, host: "localhost" } }, { podIps: [] }), "done");
  } finally {
    server.close();
    server.closeAllConnections();
  }
  assert.equal(
    await run({ httpGet: { port, path: "/x" } }),
    `failed: HTTP lifecycle hook (/x) ${WHERE} Get "http://HERE/x": dial tcp HERE: connect: connection refused`,
  );
  assert.match(await run({ httpGet: { port } }, { podIps: [] }), /failed to find networking container/);
  assert.match(await run({ httpGet: { port: "no-such" } }), /strconv\.Atoi: parsing "no-such": invalid syntax$/);
});

test("httpGet: a server that never answers is left with the signal", async () => {
  const stop = new AbortController();
  const server = createServer(() => stop.abort());
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  assert.equal(await run({ httpGet: { port } }, { signal: stop.signal }), "cancelled: the hook was cancelled");
  server.close();
  server.closeAllConnections();
});
