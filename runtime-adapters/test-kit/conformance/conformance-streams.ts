/** The cases about commands run in containers, attached outputs and forwarded ports. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { isPicoletError } from "@picolet/protocol/errors.ts";
import { millis, seconds } from "@picolet/protocol/ports.ts";
import type {
  DesiredPod,
  ObservedContainer,
  RuntimeStream,
  StreamRequest,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { WebSocket } from "ws";
import { type Bench, type ConformanceCase, desiredPod } from "./conformance-bench.ts";
import type { ConformanceCommands, ProgramLine } from "./conformance-fixture.ts";

const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, resize: 4 } as const;
const PROTOCOL = "v4.channel.k8s.io";
const PLAIN = { stdin: false, stdout: true, stderr: true, tty: false };
const NO_SUCH_ID = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const ECHO_PORT = 7007;

/** A client of the runtime's streaming server, over the simpler of the two protocols that it speaks. */
class StreamClient implements Disposable {
  readonly #socket: WebSocket;
  readonly #received = new Map<number, Buffer>();
  #wake = (): void => undefined;
  #closed = false;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    const wake = (): void => this.#wake();
    socket.on("message", (data: Buffer) => {
      const channel = data[0] ?? 0;
      this.#received.set(channel, Buffer.concat([this.#received.get(channel) ?? Buffer.alloc(0), data.subarray(1)]));
      wake();
    });
    socket.on("close", () => {
      this.#closed = true;
      wake();
    });
    socket.on("error", wake);
  }

  static async connect(stream: RuntimeStream): Promise<StreamClient> {
    assert.ok(stream.kind === "upgrade", "it is the runtime's streaming server");
    const socket = new WebSocket(`ws://${stream.host}:${stream.port}${stream.path}`, [PROTOCOL]);
    const client = new StreamClient(socket);
    await once(socket, "open");
    return client;
  }

  send(channel: number, data: string | Buffer): void {
    this.#socket.send(Buffer.concat([Buffer.of(channel), Buffer.from(data)]));
  }

  text(channel: number): string {
    return (this.#received.get(channel) ?? Buffer.alloc(0)).toString("utf8");
  }

  /** Until `look` sees what it wants; false when the session ends before. */
  async sees(check: () => boolean): Promise<boolean> {
    while (!check()) {
      if (this.#closed) return false;
      await this.#next();
    }
    return true;
  }

  closed(): Promise<boolean> {
    return this.sees(() => this.#closed);
  }

  #next(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
    });
  }

  [Symbol.dispose](): void {
    this.#socket.terminate();
  }
}

function commandsOf({ fixture }: Bench): ConformanceCommands {
  const { commands } = fixture.programs;
  assert.ok(commands, "a fixture that can exec has commands for it");
  return commands;
}

async function running(bench: Bench): Promise<{ readonly pod: DesiredPod; readonly container: ObservedContainer }> {
  const { runForever } = bench.fixture.programs;
  const pod = desiredPod(runForever);
  await bench.createSandbox(pod);
  const { id } = await bench.start(pod, runForever);
  return { pod, container: await bench.running(pod, id) };
}

const connect = async (bench: Bench, pod: DesiredPod, request: StreamRequest): Promise<StreamClient> =>
  StreamClient.connect(await bench.adapter.stream(pod.uid, request, bench.signal));

export const STREAMS: readonly ConformanceCase[] = [
  {
    name: "a command that is waited for gives its outputs and its exit code",
    needs: "exec",
    run: async (bench) => {
      const { pod, container } = await running(bench);
      const lines: ProgramLine[] = [
        { stream: "stdout", text: "to stdout" },
        { stream: "stderr", text: "to stderr" },
      ];
      for (const code of [0, 7]) {
        const command = commandsOf(bench).printAndExit(lines, code);
        const result = await bench.adapter.execSync(pod.uid, container.id, command, seconds(60), bench.signal);
        assert.equal(result.exitCode, code);
        assert.equal(Buffer.from(result.stdout).toString(), "to stdout\n");
        assert.equal(Buffer.from(result.stderr).toString(), "to stderr\n");
      }
    },
  },
  {
    name: "a command that takes too long is cut off, and its container runs on",
    needs: "exec",
    run: async (bench) => {
      const { pod, container } = await running(bench);
      const { neverEnds } = commandsOf(bench);
      const late = bench.letting(bench.adapter.execSync(pod.uid, container.id, neverEnds, millis(1000), bench.signal));
      await assert.rejects(late, (error) => isPicoletError(error, "deadline_exceeded"));
      assert.equal((await bench.container(pod, container.id)).state.kind, "running");
    },
  },
  {
    name: "nothing is streamed from and nothing run in what does not run",
    run: async (bench) => {
      const { pod } = await running(bench);
      const attach = { kind: "attach", containerId: NO_SUCH_ID, ...PLAIN } as const;
      await assert.rejects(bench.adapter.stream(pod.uid, attach, bench.signal), (error) =>
        isPicoletError(error, "not_found"),
      );
      const command = ["/bin/true"];
      await assert.rejects(
        bench.adapter.execSync(pod.uid, NO_SUCH_ID, command, seconds(1), bench.signal),
        (error) => isPicoletError(error, "not_found") || isPicoletError(error, "unimplemented"),
      );
    },
  },
  {
    name: "exec carries input, both outputs and the exit code",
    needs: "upgrade",
    run: async (bench) => {
      const { pod, container } = await running(bench);
      const { answerLine, printAndExit } = commandsOf(bench);
      const of = { kind: "exec", containerId: container.id, ...PLAIN } as const;
      using talk = await connect(bench, pod, { ...of, command: answerLine, stdin: true });
      talk.send(CHANNEL.stdin, "hello\n");
      await talk.closed();
      assert.equal(talk.text(CHANNEL.stdout), "got: hello\n");
      assert.equal(JSON.parse(talk.text(CHANNEL.error)).status, "Success");
      const command = printAndExit([{ stream: "stderr", text: "alas" }], 3);
      using failing = await connect(bench, pod, { ...of, command });
      await failing.closed();
      assert.equal(failing.text(CHANNEL.stderr), "alas\n");
      const status = JSON.parse(failing.text(CHANNEL.error));
      assert.equal(status.reason, "NonZeroExitCode");
      assert.deepEqual(status.details.causes, [{ reason: "ExitCode", message: "3" }]);
    },
  },
  {
    name: "exec with a terminal has its size and follows its changes",
    needs: "upgrade",
    run: async (bench) => {
      const { pod, container } = await running(bench);
      const { terminalSize: command } = commandsOf(bench);
      const of = { kind: "exec", containerId: container.id, ...PLAIN } as const;
      using talk = await connect(bench, pod, { ...of, command, stdin: true, stderr: false, tty: true });
      talk.send(CHANNEL.resize, JSON.stringify({ Width: 91, Height: 17 }));
      // Two ways lead to the container: the size's may take longer than the line's.
      for (;;) {
        const before = talk.text(CHANNEL.stdout).length;
        talk.send(CHANNEL.stdin, "\n");
        await bench.until("an answer", async () => (talk.text(CHANNEL.stdout).length > before ? true : undefined));
        if (talk.text(CHANNEL.stdout).includes("17 91")) break;
        await bench.fixture.settle();
      }
    },
  },
  {
    name: "attach shows what is written from now on",
    run: async (bench) => {
      const program = bench.fixture.programs.countForever;
      const pod = desiredPod(program);
      await bench.createSandbox(pod);
      const { id, logPath } = await bench.start(pod, program);
      await bench.running(pod, id);
      const stream = await bench.adapter.stream(pod.uid, { kind: "attach", containerId: id, ...PLAIN }, bench.signal);
      if (stream.kind === "log") {
        assert.equal(stream.logPath, logPath);
        return;
      }
      using client = await StreamClient.connect(stream);
      assert.ok(await client.sees(() => client.text(CHANNEL.stdout).includes("line ")), "it shows lines");
    },
  },
  {
    name: "a port of the pod is forwarded both ways",
    needs: "upgrade",
    run: async (bench) => {
      const program = bench.fixture.programs.echoServer?.(ECHO_PORT);
      assert.ok(program, "a fixture with ports to forward has a server");
      const pod = desiredPod(program);
      const sandboxId = await bench.createSandbox(pod);
      await bench.running(pod, (await bench.start(pod, program)).id);
      const request = { kind: "portForward", sandboxId, ports: [ECHO_PORT] } as const;
      // Two channels for the port, one of them for errors; each starts with the port's number, two bytes.
      await bench.until("the server to listen", async () => {
        using client = await connect(bench, pod, request);
        client.send(0, "ping");
        await client.sees(() => client.text(0).endsWith("ping") || client.text(1).length > 2);
        return client.text(0).endsWith("ping") ? true : undefined;
      });
    },
  },
];
