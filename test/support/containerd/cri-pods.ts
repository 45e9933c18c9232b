/** Pods that a test makes on a real containerd step by step, and what it sees of them. */
import assert from "node:assert/strict";
import { parsePod } from "@picolet/protocol/pod/validation/parse-pod.ts";
import { millis, podUid } from "@picolet/protocol/ports.ts";
import type {
  ContainerLaunch,
  DesiredPod,
  ObservedContainer,
  SandboxLaunch,
} from "@picolet/runtime-contract/runtime-adapter.ts";
import { BUSYBOX_PROGRAMS, type CriFixture } from "./cri-fixture.ts";
import { BUSYBOX_IMAGE } from "./test-images.ts";

export type Fields = Readonly<Record<string, unknown>>;

const { signal } = new AbortController();

export class CriPods {
  readonly #fixture: CriFixture;
  #made = 0;

  constructor(fixture: CriFixture) {
    this.#fixture = fixture;
  }

  /** A pod with one container that runs for ever. @param container its own fields @param spec of the pod */
  podOf(container: Fields = {}, spec: Fields = {}): DesiredPod {
    this.#made += 1;
    const name = `pod-${this.#made}`;
    const { command, args } = BUSYBOX_PROGRAMS.runForever;
    const containers = [{ name: "main", image: BUSYBOX_IMAGE, command, args, ...container }];
    const parsed = parsePod({ apiVersion: "v1", kind: "Pod", metadata: { name }, spec: { containers, ...spec } });
    assert.ok(parsed.ok, JSON.stringify(parsed));
    return { uid: podUid(name), source: "file", origin: "", pod: parsed.pod };
  }

  /** @returns its id */
  async sandboxOf(pod: DesiredPod, launch: Partial<SandboxLaunch> = {}): Promise<string> {
    const folders = await this.#fixture.preparePod(pod);
    const sandbox = { attempt: 0, hostname: "host-name", dns: undefined, ...folders, ...launch };
    await this.#fixture.adapter.apply(pod, { kind: "createSandbox", sandbox }, signal);
    return (await this.#fixture.adapter.inspect(pod.uid, signal)).sandboxes[0]?.id ?? "";
  }

  async start(pod: DesiredPod, launch: Partial<ContainerLaunch> = {}): Promise<ObservedContainer> {
    const [spec] = pod.pod.spec.containers;
    const container = {
      name: "main",
      attempt: 0,
      hash: "hash",
      backoff: millis(0),
      image: { requested: BUSYBOX_IMAGE, id: BUSYBOX_IMAGE },
      command: spec?.command ?? [],
      args: spec?.args ?? [],
      env: [],
      workingDir: "",
      mounts: [],
      logPath: "main/0.log",
      ...launch,
    };
    await this.#fixture.adapter.apply(pod, { kind: "startContainer", container }, signal);
    return this.latest(pod);
  }

  async latest(pod: DesiredPod): Promise<ObservedContainer> {
    const [container] = (await this.#fixture.adapter.inspect(pod.uid, signal)).containers;
    assert.ok(container);
    return container;
  }

  async exited(pod: DesiredPod) {
    for (;;) {
      const { state } = await this.latest(pod);
      if (state.kind === "exited") return state;
      await this.#fixture.settle();
    }
  }

  /** Returns the container's output. */
  async output(pod: DesiredPod, script: string, launch: Partial<ContainerLaunch> = {}): Promise<string> {
    const container = await this.start(pod, { command: ["/bin/sh", "-c", script], ...launch });
    await this.exited(pod);
    const log = await this.#fixture.readLog(container.logPath);
    return log
      .split("\n")
      .map((line) => line.split(" ").slice(3).join(" "))
      .join("\n");
  }
}
