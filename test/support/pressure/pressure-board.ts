/**
 * An emulated board under a hub, on which mixes of pods run one after the other, and what is seen of them from outside.
 */
import type { EventObject, WatchLine } from "@picolet/protocol/local-api/status.ts";
import type { Pod } from "@picolet/protocol/pod/pod.ts";
import { linesOf } from "@picolet/scripts/start/follow-pods.ts";
import { Guest } from "../guest/guest.ts";
import type { GuestAgent } from "../guest/guest-agent.ts";
import { OUTSIDE_ADDRESS } from "../guest/guest-machine.ts";
import { endProcess, Fleet } from "../hub/test-fleet.ts";
import { type MixedPod, manifestOf, PRIORITIES, type PressureMix } from "./pressure-mixes.ts";
import type { Observed, PodAtEnd, Told } from "./pressure-oracle.ts";

const NODE = "guest";
const TRANSITION_SECONDS = 5;
/** A pod starts within some seconds; a slow leak takes half a minute; the machine under the guest may be busy. */
const MIX_LIMIT_MS = 300_000;
/** So that a fork bomb is over within seconds: it takes a board's 32,768 with it as long as it likes. */
const MAX_PIDS = 1_500;
const LOG_LENGTH = 20_000;
const SERVICES = ["picolet", "containerd", "systemd-journald", "dbus"];
/** The event reasons of each condition's begin and end. */
const REASONS: Readonly<Record<string, readonly [begins: string, ends: string]>> = {
  MemoryPressure: ["NodeHasInsufficientMemory", "NodeHasSufficientMemory"],
  DiskPressure: ["NodeHasDiskPressure", "NodeHasNoDiskPressure"],
  PIDPressure: ["NodeHasInsufficientPID", "NodeHasSufficientPID"],
};

/** The node as the API has it. */
interface WatchedNode extends AsyncDisposable {
  readonly taints: ReadonlySet<string>;
  readonly told: readonly Told[];
  /** Asks again with each change of it. */
  readonly until: (what: string, isSo: () => Promise<boolean>) => Promise<void>;
}

export class PressureBoard implements AsyncDisposable {
  readonly guest: Guest;
  readonly agent: GuestAgent;
  readonly fleet: Fleet;
  readonly nodeName = NODE;
  #log = "";

  private constructor(guest: Guest, agent: GuestAgent, fleet: Fleet) {
    this.guest = guest;
    this.agent = agent;
    this.fleet = fleet;
  }

  static async start(): Promise<PressureBoard> {
    await using made = new AsyncDisposableStack();
    const guest = made.use(await Guest.start());
    const fleet = made.use(await Fleet.start(["--server-name", OUTSIDE_ADDRESS]));
    const { host, port } = guest.letReach(fleet.tunnelPort);
    await guest.output(`sysctl -w kernel.pid_max=${MAX_PIDS}`);
    const hub = { ...(await fleet.joinConfig()), server: `https://${host}:${port}` };
    const evictionPressureTransitionPeriod = `${TRANSITION_SECONDS}s`;
    const agent = await guest.agent({ config: { hub, evictionPressureTransitionPeriod } });
    await fleet.untilNodeReady(NODE);
    const items = Object.entries(PRIORITIES).map(([name, value]) => ({
      apiVersion: "scheduling.k8s.io/v1",
      kind: "PriorityClass",
      metadata: { name: `mix-${name}` },
      value,
    }));
    await fleet.apply({ apiVersion: "v1", kind: "List", items });
    const board = new PressureBoard(guest, agent, fleet);
    await board.#followLog();
    made.move();
    return board;
  }

  /** From now on: a board without a process to spare cannot be asked for it. */
  async #followLog(): Promise<void> {
    const line = "journalctl --unit picolet --output short-precise --lines 0 --no-pager --follow";
    await this.guest.command(line, (text) => {
      this.#log = (this.#log + text).slice(-LOG_LENGTH);
    });
  }

  /** The latest log of the agent and of systemd. */
  get log(): string {
    return this.#log;
  }

  /**
   * Runs the mix until all that misbehaved has ended and the node is calm; then removes it. Calls `reached` at each
   * step.
   */
  async run(mix: PressureMix, reached: (what: string) => void): Promise<Observed> {
    try {
      return await this.#run(mix, reached);
    } catch (error) {
      // The next mix is to find the board as this one did.
      await this.#clear(mix).catch(() => undefined);
      throw error;
    }
  }

  async #run(mix: PressureMix, reached: (what: string) => void): Promise<Observed> {
    const good = mix.pods.filter(({ usesUp }) => usesUp === undefined);
    // One at a time: what starts them takes more memory for a moment than they do.
    for (const pod of good) {
      await this.#make([pod]);
      await this.agent.waitForPods(
        `${pod.name} runs`,
        (pods) => pods.get(this.#nameOf(pod))?.status?.phase === "Running",
      );
    }
    reached("those that behave run");
    const [processesBefore, servicesBefore] = [await this.#processes(good), await this.#services()];
    await using node = this.#watchNode();
    const bad = mix.pods.filter(({ usesUp }) => usesUp !== undefined);
    const told = await this.#follow(() => this.#make(bad), bad, node);
    reached("the others have ended, and the node is calm");
    // The API has it a moment after the agent.
    for (const type of Object.keys(REASONS))
      await this.fleet.kubectl(["wait", `--for=condition=${type}=False`, `node/${NODE}`, "--timeout=60s"]);
    await this.fleet.seen(
      ["get", "node", NODE, "--watch", "-o", 'jsonpath=<{.spec.taints[*].key}>{"\\n"}'],
      (text) => !/pressure>?\S*\n$/.test(text.slice(text.lastIndexOf("<"))),
    );
    const processesAfter = await this.#processes(mix.pods);
    const servicesAfter = await this.#services();
    const observed: Observed = {
      told: [...told, ...node.told],
      pods: await this.#ends(mix.pods, processesBefore, processesAfter),
      services: new Map(SERVICES.map((name) => [name, [servicesBefore.get(name) ?? 0, servicesAfter.get(name) ?? 0]])),
      taintsSeen: node.taints,
      taintsAfter: new Set(await this.#taints()),
      transitionPeriodMs: TRANSITION_SECONDS * 1_000,
    };
    reached("all is seen");
    await this.#clear(mix);
    reached("all is taken away");
    return observed;
  }

  readonly #nameOf = ({ name, source }: MixedPod): string => (source === "static" ? `${name}-${NODE}` : name);

  async #make(pods: readonly MixedPod[]): Promise<void> {
    for (const pod of pods.filter(({ source }) => source === "static"))
      await this.agent.writeManifest(`${pod.name}.yaml`, manifestOf(pod, NODE));
    const items = pods.filter(({ source }) => source === "api").map((pod) => manifestOf(pod, NODE));
    if (items.length > 0) await this.fleet.apply({ apiVersion: "v1", kind: "List", items });
  }

  async #clear(mix: PressureMix): Promise<void> {
    for (const pod of mix.pods.filter(({ source }) => source === "static"))
      await this.agent.removeManifest(`${pod.name}.yaml`);
    await this.fleet.kubectl(["delete", "pods", "--all", "--wait=true", "--timeout=100s"]);
    await this.agent.waitForPods("no pod is left", (pods) => pods.size === 0);
  }

  /** The agent's events from `begin` until each of `bad` has ended and no pressure is left, in their order. */
  async #follow(begin: () => Promise<void>, bad: readonly MixedPod[], node: WatchedNode): Promise<readonly Told[]> {
    const seen: Told[] = [];
    const response = await this.agent.request("/v1/events?watch=true");
    const since = await this.#now();
    const names = bad.map((pod) => this.#nameOf(pod));
    const over = (async (): Promise<void> => {
      for await (const line of linesOf(response)) {
        const change = JSON.parse(line) as WatchLine<EventObject>;
        if (change.type === "ERROR") throw new Error(change.error.message);
        const { reason, involvedObject, lastTimestamp } = change.object;
        const atMs = Date.parse(lastTimestamp);
        if (atMs >= since && involvedObject.kind === "Pod")
          seen.push({ reason, name: this.#declaredName(involvedObject.name), atMs });
      }
    })();
    over.catch(() => undefined);
    const timer = setTimeout(() => response.destroy(new Error("waited too long")), MIX_LIMIT_MS);
    try {
      await begin();
      await this.agent.waitForPods("those that misbehave have ended", (pods) =>
        names.every((name) => pods.get(name)?.status?.phase === "Failed"),
      );
      // The agent's events of its node are limited in number, as the kubelet's are: they tell not each change.
      await node.until("the node is calm", async () =>
        (await this.agent.status()).conditions.every(
          ({ type, status }) => !type.endsWith("Pressure") || status === "False",
        ),
      );
    } finally {
      clearTimeout(timer);
      response.destroy();
    }
    await over.catch(() => undefined);
    return seen;
  }

  readonly #declaredName = (name: string): string => name.replace(new RegExp(`-${NODE}$`), "");

  async #now(): Promise<number> {
    return Number(await this.guest.output("date +%s")) * 1_000;
  }

  /** By the kernel: what runs in each pod's cgroup, by declared name. */
  async #processes(pods: readonly MixedPod[]): Promise<ReadonlyMap<string, readonly number[]>> {
    const uids = await this.#uids();
    const found = new Map<string, readonly number[]>();
    for (const pod of pods) {
      const uid = uids.get(pod.name) ?? "";
      const line = `find /sys/fs/cgroup -path "*pod${uid}*" -name cgroup.procs -exec cat {} + 2>/dev/null`;
      const { stdout } = await this.guest.run(line);
      found.set(
        pod.name,
        stdout
          .split("\n")
          .filter(Boolean)
          .map(Number)
          .sort((left, right) => left - right),
      );
    }
    return found;
  }

  async #uids(): Promise<ReadonlyMap<string, string>> {
    const pods = await this.#pods();
    return new Map([...pods].map(([name, { metadata }]) => [name, metadata.uid ?? ""]));
  }

  async #pods(): Promise<ReadonlyMap<string, Pod>> {
    const all = await this.agent.waitForPods("the pods", () => true);
    return new Map([...all].map(([name, pod]) => [this.#declaredName(name), pod]));
  }

  async #ends(
    mixed: readonly MixedPod[],
    before: ReadonlyMap<string, readonly number[]>,
    after: ReadonlyMap<string, readonly number[]>,
  ): Promise<ReadonlyMap<string, PodAtEnd>> {
    const pods = await this.#pods();
    const ends = new Map<string, PodAtEnd>();
    for (const { name } of mixed) {
      const status = pods.get(name)?.status;
      if (status === undefined) continue;
      const container = status.containerStatuses?.[0];
      ends.set(name, {
        phase: status.phase ?? "",
        reason: status.reason,
        message: status.message,
        restarts: container?.restartCount ?? 0,
        terminated: (container?.state?.terminated ?? container?.lastState?.terminated)?.reason,
        processesBefore: before.get(name) ?? [],
        processesAfter: after.get(name) ?? [],
      });
    }
    return ends;
  }

  async #services(): Promise<ReadonlyMap<string, number>> {
    const pids = await this.guest.output(`systemctl show --value --property MainPID ${SERVICES.join(" ")}`);
    const numbers = pids.split("\n").filter(Boolean).map(Number);
    return new Map(SERVICES.map((name, index) => [name, numbers[index] ?? 0]));
  }

  async #taints(): Promise<readonly string[]> {
    return (await this.fleet.kubectl(["get", "node", NODE, "-o", "jsonpath={.spec.taints[*].key}"])).split(" ");
  }

  /**
   * As the API has the node: every taint since, and each change of a pressure condition. Its events are limited in
   * number.
   */
  #watchNode(): WatchedNode {
    const taints = new Set<string>();
    const told: Told[] = [];
    const was = new Map<string, string>();
    // Without `range`, which kubectl does only once.
    const parts = ["type", "status", "lastTransitionTime"].map((name) => `{.status.conditions[*].${name}}|`);
    const words = `jsonpath=${parts.join("")}{.spec.taints[*].key}{"\\n"}`;
    const watch = this.fleet.spawnKubectl(["get", "node", NODE, "--watch", "-o", words]);
    const take = (line: string): void => {
      const [types = [], statuses = [], times = [], keys = []] = line.split("|").map((part) => part.split(" "));
      for (const key of keys) taints.add(key);
      for (const [index, type] of types.entries()) {
        const status = statuses[index] ?? "";
        const reason = REASONS[type]?.[status === "True" ? 0 : 1];
        if (reason !== undefined && was.has(type) && was.get(type) !== status)
          told.push({ reason, name: NODE, atMs: Date.parse(times[index] ?? "") });
        was.set(type, status);
      }
    };
    let rest = "";
    let changed = Promise.withResolvers<boolean>();
    watch.stdout?.setEncoding("utf8").on("data", (text: string) => {
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      lines.forEach(take);
      changed.resolve(true);
      changed = Promise.withResolvers();
    });
    watch.once("exit", () => changed.resolve(false));
    const until = async (what: string, isSo: () => Promise<boolean>): Promise<void> => {
      const timer = setTimeout(() => changed.resolve(false), MIX_LIMIT_MS);
      try {
        for (let change = changed.promise; !(await isSo()); change = changed.promise)
          if (!(await change)) throw new Error(`${what} did not come about`);
      } finally {
        clearTimeout(timer);
      }
    };
    return { taints, told, until, [Symbol.asyncDispose]: () => endProcess(watch) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.fleet[Symbol.asyncDispose]();
    await this.guest[Symbol.asyncDispose]();
  }
}
