/** The agent on a machine with systemd: a systemd unit with what lies in `dist/board`, as a package would install it. */
import { AgentClient } from "../agent/agent-socket.ts";
import { makeTar } from "../unit/images/tar.ts";
import type { BoardMachine } from "./board-machine.ts";

const MANIFESTS = "/etc/picolet/manifests";
const CONFIG = "/etc/picolet/config.yaml";
const SOCKET = "/run/picolet/picolet.sock";
/** Two minutes of a real machine. */
const WAIT_LIMIT_MS = 300_000;
const START_LIMIT_MS = 120_000;
const LOG_LINES = 80;

export interface GuestAgentOptions {
  /** Fields of the configuration besides the node's name, the manifest folder and the runtime's socket. */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Files to be there before it starts: path in the guest → content. */
  readonly files?: Readonly<Record<string, string | Uint8Array>>;
}

export class GuestAgent extends AgentClient {
  readonly socketPath: string;
  protected override readonly waitLimitMs = WAIT_LIMIT_MS;
  readonly #guest: BoardMachine;

  private constructor(guest: BoardMachine, socketPath: string) {
    super();
    this.#guest = guest;
    this.socketPath = socketPath;
  }

  static async start(guest: BoardMachine, { config = {}, files = {} }: GuestAgentOptions): Promise<GuestAgent> {
    const whole = {
      nodeName: "guest",
      staticPodPath: MANIFESTS,
      containerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
      ...config,
    };
    await guest.output(`mkdir -p ${MANIFESTS} /run/picolet && tar -xf - -C /`, {
      input: makeTar({ ...files, [CONFIG]: JSON.stringify(whole) }),
    });
    if (config.cgroupDriver === "systemd") await useSystemdCgroups(guest);
    const agent = new GuestAgent(guest, await guest.forward(SOCKET));
    await agent.start();
    return agent;
  }

  /** Starts the unit, and waits until its socket answers. */
  async start(): Promise<void> {
    await this.#guest.output("systemctl start picolet");
    await this.answers();
  }

  /** Waits until the agent that systemd has started last answers. */
  async answers(): Promise<void> {
    const run = (await this.#guest.output("systemctl show -P InvocationID picolet")).trim();
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    let log = "";
    const line = `journalctl _SYSTEMD_INVOCATION_ID=${run} + INVOCATION_ID=${run} --output cat --lines all --follow`;
    const follower = await this.#guest.command(line, (text) => {
      log += text;
      if (log.includes("local API listens")) resolve();
      if (log.includes("Main process exited")) reject(new Error(`the agent ended\n${log}`));
    });
    const late = (): void => reject(new Error(`the agent did not start\n${log}\n${this.#guest.console}`));
    const timer = setTimeout(late, START_LIMIT_MS);
    try {
      await Promise.race([promise, follower.ended]);
    } finally {
      clearTimeout(timer);
      follower.kill();
    }
  }

  /** SIGTERM; its pods run on. */
  async stop(): Promise<void> {
    await this.#guest.output("systemctl stop picolet");
  }

  /** Its process now; 0 while there is none. Another one than before means that it has ended in the meantime. */
  async pid(): Promise<number> {
    return Number(await this.#guest.output("systemctl show -P MainPID picolet"));
  }

  writeManifest(file: string, manifest: unknown): Promise<void> {
    const content = typeof manifest === "string" ? manifest : JSON.stringify(manifest);
    return this.#guest.upload(`${MANIFESTS}/${file}`, content);
  }

  async removeManifest(file: string): Promise<void> {
    await this.#guest.output(`rm ${MANIFESTS}/${file}`);
  }

  /** Its own log and systemd's of it, the last lines. */
  log(lines = LOG_LINES): Promise<string> {
    return this.#guest.output(`journalctl --unit picolet --output cat --lines ${lines} --no-pager`);
  }

  protected override latestLog(): Promise<string> {
    return this.log();
  }
}

/** The runtime needs the same driver. */
async function useSystemdCgroups(guest: BoardMachine): Promise<void> {
  const config = "/etc/containerd/config.toml";
  await guest.output(
    `sed -i 's/SystemdCgroup = false/SystemdCgroup = true/' ${config} && systemctl restart containerd`,
  );
}
