/**
 * The machine of a reader of the documents, in namespaces of its own: a clone, containerd, kubectl, a registry, and
 * empty folders where picolet keeps its files. `reader-machine-main.ts` runs in these namespaces.
 */
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { request } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { dirname, join, resolve } from "node:path";
import { buildImageArchive } from "@picolet/scripts/build/build-image-archive.ts";
import { kubectlPath } from "@picolet/scripts/test/install-kubectl.ts";
import { AgentClient } from "../support/agent/agent-socket.ts";
import { SLEEP_SCRIPT } from "../support/agent/node-fixtures.ts";
import { Containerd } from "../support/containerd/containerd.ts";
import { Registry } from "../support/containerd/real-registry.ts";
import { BUSYBOX_APPLETS } from "../support/containerd/test-images.ts";
import { TlsAuthority } from "../support/unit/identity/tls-authority.ts";
import { ReaderShell, type RunningCommand } from "./reader-shell.ts";

/** The name that the samples in the documents have. */
const HOST_NAME = "vm";
/** Covered by a layer in memory, which takes what is written there. */
const COVERED = ["/etc", "/run", "/usr/share", "/var/lib"];
/** Folders in covered ones that begin empty. */
const EMPTY = ["/etc/picolet", "/var/lib/picolet", "/var/lib/picolet-hub", "/run/picolet", "/run/containerd"];
/** Programs of a reader's machine that must not run on this one. */
const HARMLESS = ["poweroff", "alarm"];
/** Each has a layer of its own. */
const IMAGES = ["sensor:3", "sensor:4", "db:2", "app:1", "app:2"];

export class ReaderMachine extends AgentClient implements AsyncDisposable {
  readonly socketPath = "/run/picolet/picolet.sock";
  readonly clone: string;
  readonly shell: ReaderShell;
  readonly containerd: Containerd;
  readonly registry: SlowRegistry;
  /** Commands that still run, by their text. */
  readonly running = new Map<string, RunningCommand>();
  readonly #disposal: AsyncDisposableStack;

  private constructor(
    parts: Pick<ReaderMachine, "clone" | "shell" | "containerd" | "registry">,
    disposal: AsyncDisposableStack,
  ) {
    super();
    this.clone = parts.clone;
    this.shell = parts.shell;
    this.containerd = parts.containerd;
    this.registry = parts.registry;
    this.#disposal = disposal;
  }

  /** @param folder empty; all that the machine writes is below it */
  static async start(folder: string): Promise<ReaderMachine> {
    await using all = new AsyncDisposableStack();
    setUpSystem(folder);
    const clone = join(folder, "picolet");
    mkdirSync(clone);
    for (const name of readdirSync("."))
      if (!/^(dist|\.picolet|\.git)$/.test(name)) symlinkSync(resolve(name), join(clone, name));
    const authority = new TlsAuthority();
    process.env.SSL_CERT_FILE = join(folder, "ca.pem");
    writeFileSync(process.env.SSL_CERT_FILE, authority.ca);
    const containerd = all.use(await Containerd.start());
    const registry = all.use(await SlowRegistry.start(authority, containerd, folder));
    const shell = all.use(
      new ReaderShell({ cwd: clone, folder: join(folder, "commands"), env: readerEnvironment(folder) }),
    );
    return new ReaderMachine({ clone, shell, containerd, registry }, all.move());
  }

  protected override latestLog(): string {
    return [...this.running.values()].map(({ text, output }) => `${text}:\n${output.slice(-3000)}`).join("\n");
  }

  /** Starts a command that stays, and waits until it has printed what fits. */
  async startService(text: string, fits: (output: string) => boolean): Promise<RunningCommand> {
    const command = await this.shell.start(text);
    this.running.set(text, command);
    await command.until(fits);
    return command;
  }

  /** Ends the one that was started with a text that begins so. */
  async endService(start: string, signal: "SIGINT" | "SIGTERM"): Promise<string> {
    const text = [...this.running.keys()].find((each) => each.startsWith(start));
    if (text === undefined) throw new Error(`no "${start}" runs, but ${[...this.running.keys()].join(", ")}`);
    await this.running.get(text)?.end(signal);
    this.running.delete(text);
    return text;
  }

  /** A step that no document shows. @throws when it fails */
  async prepare(text: string): Promise<string> {
    const { code, output } = await this.shell.run(text);
    if (code !== 0) throw new Error(`cannot prepare with "${text}": exit code ${code}\n${output}`);
    return output;
  }

  /** In the reader's folder unless the path is absolute. Replaces what is there at once, as a careful user does. */
  write(path: string, text: string): void {
    const target = resolve(this.clone, path);
    mkdirSync(dirname(target), { recursive: true });
    const hidden = join(dirname(target), `.${process.pid}.new`);
    writeFileSync(hidden, text);
    renameSync(hidden, target);
  }

  append(path: string, text: string): void {
    appendFileSync(resolve(this.clone, path), text);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#disposal.disposeAsync();
  }
}

/** Mounts, network, host name and cgroups; all of it is in namespaces of this process. */
function setUpSystem(folder: string): void {
  const layers = join(folder, "layers");
  mkdirSync(layers);
  run("mount", "-t", "tmpfs", "tmpfs", layers);
  for (const path of COVERED) {
    const layer = join(layers, path.replaceAll("/", "_"));
    for (const part of ["upper", "work"]) mkdirSync(join(layer, part), { recursive: true });
    const options = `lowerdir=${path},upperdir=${layer}/upper,workdir=${layer}/work`;
    run("mount", "-t", "overlay", "-o", options, "overlay", path);
  }
  for (const path of EMPTY) {
    rmSync(path, { recursive: true, force: true });
    mkdirSync(path);
  }
  run("hostname", HOST_NAME);
  writeFileSync("/etc/hosts", `127.0.0.1 localhost ${HOST_NAME} hub.example registry.example\n`);
  run("ip", "link", "set", "lo", "up");
  run("ip", "link", "add", "eth0", "type", "bridge");
  run("ip", "address", "add", "192.0.2.10/24", "dev", "eth0");
  run("ip", "link", "set", "eth0", "up");
  for (const [, point = "", type = "", options = ""] of cgroupMounts()) {
    run("umount", point);
    run("mount", "-t", type, "-o", options, "cgroup", point);
  }
}

/** Where each cgroup hierarchy is mounted, its file system type, and the options that name its controllers. */
function cgroupMounts(): readonly RegExpMatchArray[] {
  const mounts = readFileSync("/proc/self/mounts", "utf8").matchAll(/^\S+ (\/sys\/fs\/cgroup\S*) (cgroup2?) (\S+) /gm);
  return [...mounts].map((match) => {
    match[3] = (match[3] ?? "").replace(/^rw,(?:nosuid,nodev,noexec,)?relatime,?/, "") || "rw";
    return match;
  });
}

function readerEnvironment(folder: string): NodeJS.ProcessEnv {
  const bin = join(folder, "bin");
  mkdirSync(bin);
  symlinkSync(kubectlPath("1.32"), join(bin, "kubectl"));
  for (const name of HARMLESS) {
    writeFileSync(join(bin, name), "#!/bin/sh\n");
    chmodSync(join(bin, name), 0o755);
  }
  const home = join(folder, "home");
  mkdirSync(home);
  // Without the project's own Node: a reader has any.
  const path = (process.env.PATH ?? "").split(":").filter((each) => !each.includes("node_modules"));
  const { LANG = "C.UTF-8" } = process.env;
  // The machine's own shutdown is no matter of this one's.
  return { PATH: [bin, ...path].join(":"), HOME: home, LANG, DBUS_SYSTEM_BUS_ADDRESS: "disabled:" };
}

/** `registry.example`, by HTTPS on the port that names without one mean, and as slow as a test wants it. */
class SlowRegistry implements AsyncDisposable {
  readonly #disposal: AsyncDisposableStack;
  #released: Promise<void> = Promise.resolve();
  #release = (): void => undefined;

  private constructor(disposal: AsyncDisposableStack) {
    this.#disposal = disposal;
  }

  static async start(authority: TlsAuthority, containerd: Containerd, folder: string): Promise<SlowRegistry> {
    await using all = new AsyncDisposableStack();
    const registry = all.use(await Registry.start());
    // Neither in the namespace that CRI uses nor left in the content store: a pull would find the layers there.
    const ctr = (...words: readonly string[]): string => containerd.ctr("--namespace", "documents", ...words);
    for (const each of IMAGES) {
      const name = `${registry.address}/${each}`;
      const layer = join(folder, "images", each.replace(":", "-"));
      mkdirSync(layer, { recursive: true });
      writeFileSync(join(layer, "name"), each);
      const files = { "bin/busybox": "/bin/busybox", name: join(layer, "name") };
      const links = Object.fromEntries(BUSYBOX_APPLETS.map((applet) => [`bin/${applet}`, "busybox"]));
      const command = ["/bin/sh", "-c", SLEEP_SCRIPT];
      ctr("images", "import", buildImageArchive({ name, files, links, command }, layer));
      ctr("images", "push", "--plain-http", name);
      ctr("images", "remove", "--sync", name);
    }
    const { certificate: cert, privateKey: key } = authority.issueServer("registry.example");
    const port = Number(registry.address.split(":")[1]);
    const slow = new SlowRegistry(all.move());
    const server = createServer({ cert, key }, (incoming, outgoing) => {
      const { method, url: path, headers } = incoming;
      const inner = request({ host: "127.0.0.1", port, method, path, headers }, (response) => {
        outgoing.writeHead(response.statusCode ?? 502, response.headers);
        if (path?.includes("/blobs/")) {
          outgoing.flushHeaders();
          void slow.#released.then(() => response.pipe(outgoing));
        } else response.pipe(outgoing);
      });
      inner.on("error", () => outgoing.destroy());
      incoming.pipe(inner);
    });
    slow.#disposal.defer(() => {
      server.closeAllConnections();
      server.close();
    });
    await new Promise<void>((listening) => server.listen(443, "127.0.0.1", listening));
    if ((server.address() as AddressInfo).port !== 443) throw new Error("no port for the registry");
    return slow;
  }

  /** From now on layers do not arrive, until `release`. */
  hold(): void {
    this.#released = new Promise((released) => {
      this.#release = released;
    });
  }

  release(): void {
    this.#release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#release();
    await this.#disposal.disposeAsync();
  }
}

function run(program: string, ...args: readonly string[]): void {
  execFileSync(program, args, { stdio: ["ignore", "ignore", "pipe"] });
}
