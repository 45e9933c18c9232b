/**
 * Where the key-encryption key comes from. Loaded at the start alone: tools run as short-lived children, secrets go
 * through their pipes and never through arguments or files.
 */
import { spawn } from "node:child_process";
import { hkdfSync, randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, delimiter, dirname, join, resolve } from "node:path";
import { describeError, ignore, PicoletError } from "@picolet/protocol/errors.ts";
import { errnoOf } from "@picolet/protocol/guards.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import { KIBIBYTE } from "@picolet/protocol/units.ts";
import { KEY_BYTES, type KeyFolder, type ProviderRecord } from "./key-file.ts";

export interface KeyProvider<R extends ProviderRecord = ProviderRecord> {
  readonly kind: R["kind"];
  /** Why this board has no such thing; undefined: it has. */
  missing(): Promise<string | undefined>;
  /** @returns whether the key stays with the board when its disk is removed */
  isBoundToBoard(): Promise<boolean>;
  /** A new key-encryption key, and what recovers it. @throws `unavailable` */
  create(): Promise<{ readonly kek: Buffer; readonly record: R }>;
  /** @throws `corrupt` when this board will never recover it, `unavailable` when a later start may */
  recover(record: R): Promise<Buffer>;
  /** @returns whether `create` would keep the key in another place than this record names */
  hasMoved?(record: R): boolean;
  /** Removes what `record` left on the disk; nothing needs it any more. */
  discard?(record: R): void;
}

/**
 * Runs a program to its end. @returns its output @throws `not_found`, `failed` with what it complained of,
 * `deadline_exceeded`
 */
export type RunTool = (program: string, args: readonly string[], input?: Uint8Array) => Promise<Buffer>;

export interface KeyProvidersInit {
  /** TPM of the kernel's resource manager, which more than one program can use. Default `/dev/tpmrm0`. */
  readonly tpmDevice?: string;
  /** Default `/run/systemd/system`, which is there where systemd is the init. */
  readonly systemdFolder?: string;
  /** Default `/sys/bus/nvmem/devices`. */
  readonly nvmemFolder?: string;
  /** The path of the provider `file`, absolute. */
  readonly keyFile: string;
  /** That of the store. */
  readonly rootDir: string;
  readonly run?: RunTool;
  /** Opens the folder of the key file. */
  readonly folderAt: (path: string) => KeyFolder;
}

/** A TPM makes a primary key within a second or two; one that is in another use is waited for. */
const TOOL_TIMEOUT = seconds(20);
/** A sealed object has some 300 bytes, a systemd credential below 1 KiB. */
const MAX_OUTPUT_BYTES = 16 * KIBIBYTE;
const MAX_COMPLAINT_LENGTH = 400;

export const runTool: RunTool = (program, args, input = new Uint8Array(0)) =>
  new Promise((resolve, reject) => {
    const child = spawn(program, [...args], { stdio: "pipe", timeout: TOOL_TIMEOUT, killSignal: "SIGKILL" });
    const output: Buffer[] = [];
    let bytes = 0;
    let complaint = "";
    child.stdout.on("data", (piece: Buffer) => {
      bytes += piece.length;
      if (bytes <= MAX_OUTPUT_BYTES) output.push(piece);
      else child.kill("SIGKILL");
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      complaint = (complaint + text).slice(0, MAX_COMPLAINT_LENGTH);
    });
    child.on("error", (cause) => reject(new PicoletError("not_found", `cannot run ${program}`, { cause })));
    child.on("close", (code, by) => {
      if (code === 0) resolve(Buffer.concat(output));
      else if (by !== null)
        reject(new PicoletError("deadline_exceeded", `${program} was ended after ${TOOL_TIMEOUT} ms`));
      else reject(new PicoletError("failed", `${program} ended with code ${code}: ${complaint.trim()}`));
    });
    child.stdin.on("error", ignore("a program that does not read its input breaks the pipe; how it ends says more"));
    child.stdin.end(input);
  });

/** In the order in which they are preferred. */
export function makeKeyProviders(init: KeyProvidersInit): readonly KeyProvider[] {
  const run = init.run ?? runTool;
  const { tpmDevice = "/dev/tpmrm0", systemdFolder = "/run/systemd/system" } = init;
  const { nvmemFolder = "/sys/bus/nvmem/devices" } = init;
  const systemd = new SystemdCreds(run, systemdFolder);
  const otp = new RaspberryPiOtp(run, nvmemFolder);
  return [new Tpm2(run, tpmDevice), systemd, otp, new KeyInFile(init)];
}

const isOnPath = (program: string): boolean =>
  (process.env.PATH ?? "").split(delimiter).some((folder) => folder !== "" && existsSync(join(folder, program)));

/**
 * TPM_RC_INTEGRITY and TPM_RC_HANDLE of a sealed object whose parent is another one: the TPM was cleared, or is
 * another.
 */
const FOREIGN_OBJECT = /integrity check failed|0x1df\b|0x1DF\b/i;

class Tpm2 implements KeyProvider<Extract<ProviderRecord, { kind: "tpm2" }>> {
  readonly kind = "tpm2";
  readonly #run: RunTool;
  readonly #device: string;

  constructor(run: RunTool, device: string) {
    this.#run = run;
    this.#device = device;
  }

  async missing(): Promise<string | undefined> {
    if (!existsSync(this.#device)) return `there is no ${this.#device}`;
    return isOnPath("tpm2_unseal") ? undefined : "tpm2-tools are not installed";
  }

  async isBoundToBoard(): Promise<boolean> {
    return true;
  }

  async create() {
    const kek = randomBytes(KEY_BYTES);
    return await this.#inFolder(async (folder) => {
      const [pub, priv] = [join(folder, "key.pub"), join(folder, "key.priv")];
      const attributes = "fixedtpm|fixedparent|userwithauth|noda";
      await this.#primary(folder);
      const parent = ["-C", join(folder, "primary.ctx")];
      await this.#tool("tpm2_create", ["-Q", ...parent, "-a", attributes, "-i", "-", "-u", pub, "-r", priv], kek);
      const [publicPart, privatePart] = [pub, priv].map((path) => readFileSync(path).toString("base64"));
      return { kek, record: { kind: this.kind, public: publicPart ?? "", private: privatePart ?? "" } as const };
    });
  }

  async recover(record: Extract<ProviderRecord, { kind: "tpm2" }>): Promise<Buffer> {
    return await this.#inFolder(async (folder) => {
      await this.#primary(folder);
      const [pub, priv, object] = [join(folder, "key.pub"), join(folder, "key.priv"), join(folder, "key.ctx")];
      writeFileSync(pub, Buffer.from(record.public, "base64"), { mode: 0o600 });
      writeFileSync(priv, Buffer.from(record.private, "base64"), { mode: 0o600 });
      await this.#tool("tpm2_load", ["-Q", "-C", join(folder, "primary.ctx"), "-u", pub, "-r", priv, "-c", object]);
      return keyOf(await this.#tool("tpm2_unseal", ["-Q", "-c", object]), "the TPM");
    });
  }

  /** The same at each start: it follows from the TPM's seed and this template, and needs no place in the TPM. */
  async #primary(folder: string): Promise<void> {
    const context = join(folder, "primary.ctx");
    await this.#tool("tpm2_createprimary", ["-Q", "-C", "o", "-g", "sha256", "-G", "ecc", "-c", context]);
  }

  async #tool(program: string, args: readonly string[], input?: Uint8Array): Promise<Buffer> {
    try {
      return await this.#run(program, ["-T", `device:${this.#device}`, ...args], input);
    } catch (cause) {
      const isForeign = program === "tpm2_load" && FOREIGN_OBJECT.test(describeError(cause));
      if (isForeign) throw new PicoletError("corrupt", "the TPM was cleared, or is another one", { cause });
      throw unavailable("cannot use the TPM", cause);
    }
  }

  /** What is in it is public, or encrypted by the TPM. */
  async #inFolder<R>(work: (folder: string) => Promise<R>): Promise<R> {
    const folder = mkdtempSync(join(tmpdir(), "picolet-tpm-"));
    try {
      return await work(folder);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}

/** systemd refuses a credential under another name. */
const CREDENTIAL = "picolet-store";
/** Texts of systemd-creds for a credential that this host, or its TPM, cannot open. */
const FOREIGN_CREDENTIAL = /bad message|decryption failed|incorrect|EBADMSG|embedded (?:host|tpm)|not a valid/i;

class SystemdCreds implements KeyProvider<Extract<ProviderRecord, { kind: "systemd-creds" }>> {
  readonly kind = "systemd-creds";
  readonly #run: RunTool;
  readonly #folder: string;

  constructor(run: RunTool, folder: string) {
    this.#run = run;
    this.#folder = folder;
  }

  async missing(): Promise<string | undefined> {
    if (!existsSync(this.#folder)) return "systemd does not run this system";
    return isOnPath("systemd-creds") ? undefined : "systemd-creds is not installed";
  }

  async create() {
    const kek = randomBytes(KEY_BYTES);
    const boundTo = (await this.isBoundToBoard()) ? "host+tpm2" : "host";
    const args = ["encrypt", `--name=${CREDENTIAL}`, `--with-key=${boundTo}`, "-", "-"];
    try {
      const text = (await this.#run("systemd-creds", args, Buffer.from(kek.toString("base64")))).toString("latin1");
      return { kek, record: { kind: this.kind, credential: text.replace(/\s/g, ""), boundTo } as const };
    } catch (cause) {
      throw unavailable("cannot encrypt with systemd-creds", cause);
    }
  }

  async recover({ credential }: Extract<ProviderRecord, { kind: "systemd-creds" }>): Promise<Buffer> {
    let text: Buffer;
    try {
      text = await this.#run("systemd-creds", ["decrypt", `--name=${CREDENTIAL}`, "-", "-"], Buffer.from(credential));
    } catch (cause) {
      const isForeign = FOREIGN_CREDENTIAL.test(describeError(cause));
      if (isForeign) throw new PicoletError("corrupt", "systemd's key is another one", { cause });
      throw unavailable("cannot decrypt with systemd-creds", cause);
    }
    return keyOf(Buffer.from(text.toString("latin1"), "base64"), "systemd-creds");
  }

  /** `systemd-creds has-tpm2` ends with 0 where firmware, driver and libraries are there. */
  async isBoundToBoard(): Promise<boolean> {
    return await this.#run("systemd-creds", ["has-tpm2", "--quiet"]).then(
      () => true,
      () => false,
    );
  }
}

/** 256 bits that the owner of a Raspberry Pi 4 or later has programmed into its SoC; Pi 5 has room for 512. */
class RaspberryPiOtp implements KeyProvider<Extract<ProviderRecord, { kind: "rpi-otp" }>> {
  readonly kind = "rpi-otp";
  readonly #run: RunTool;
  readonly #nvmemFolder: string;

  constructor(run: RunTool, nvmemFolder: string) {
    this.#run = run;
    this.#nvmemFolder = nvmemFolder;
  }

  async missing(): Promise<string | undefined> {
    try {
      await this.#read();
      return undefined;
    } catch (error) {
      return describeError(error);
    }
  }

  async isBoundToBoard(): Promise<boolean> {
    return true;
  }

  async create() {
    const record = { kind: this.kind, salt: randomBytes(KEY_BYTES).toString("base64") } as const;
    return { kek: await this.recover(record), record };
  }

  async recover({ salt }: Extract<ProviderRecord, { kind: "rpi-otp" }>): Promise<Buffer> {
    const otp = await this.#read();
    return Buffer.from(hkdfSync("sha256", otp, Buffer.from(salt, "base64"), "picolet store key", KEY_BYTES));
  }

  /** The kernel's file where there is one; else the tool, which asks the firmware. @throws `unavailable` */
  async #read(): Promise<Buffer> {
    const otp = this.#fromKernel() ?? (await this.#fromFirmware());
    if (otp.every((byte) => byte === 0)) throw unavailable("the OTP key of this Raspberry Pi has not been programmed");
    return otp;
  }

  #fromKernel(): Buffer | undefined {
    if (!existsSync(this.#nvmemFolder)) return undefined;
    const device = readdirSync(this.#nvmemFolder).find((name) => name.startsWith("rpi-otp-private"));
    if (device === undefined) return undefined;
    try {
      return readFileSync(join(this.#nvmemFolder, device, "nvmem"));
    } catch (cause) {
      throw unavailable("cannot read the OTP key", cause);
    }
  }

  async #fromFirmware(): Promise<Buffer> {
    const tool = "rpi-otp-private-key";
    if (!isOnPath(tool))
      throw unavailable(`this is no Raspberry Pi with a readable OTP key, and no ${tool} is installed`);
    const text = (await this.#run(tool, [])).toString("latin1").trim();
    if (!/^(?:[0-9a-f]{64}){1,2}$/i.test(text)) throw unavailable(`cannot use what ${tool} printed`);
    return Buffer.from(text, "hex");
  }
}

const LOST = ".lost";

class KeyInFile implements KeyProvider<Extract<ProviderRecord, { kind: "file" }>> {
  readonly kind = "file";
  readonly #path: string;
  readonly #rootDir: string;
  readonly #folderAt: (path: string) => KeyFolder;

  constructor({ keyFile, rootDir, folderAt }: Pick<KeyProvidersInit, "keyFile" | "rootDir" | "folderAt">) {
    this.#path = keyFile;
    this.#rootDir = rootDir;
    this.#folderAt = folderAt;
  }

  async missing(): Promise<undefined> {
    return undefined;
  }

  async isBoundToBoard(): Promise<boolean> {
    return false;
  }

  async create() {
    const kek = randomBytes(KEY_BYTES);
    const name = basename(this.#path);
    try {
      const folder = this.#folderAt(dirname(this.#path));
      // A key file that was damaged may be mended by hand, and needs this key then.
      if (existsSync(this.#path)) folder.rename(name, `${name}${LOST}`);
      folder.write(`${name}.new`, `${kek.toString("base64")}\n`);
      folder.rename(`${name}.new`, name);
      folder.sync();
    } catch (cause) {
      throw unavailable(`cannot write ${this.#path}`, cause);
    }
    return { kek, record: { kind: this.kind, path: this.#recorded } as const };
  }

  async recover(record: Extract<ProviderRecord, { kind: "file" }>): Promise<Buffer> {
    const path = resolve(this.#rootDir, record.path);
    let text: string;
    try {
      text = readFileSync(path, "utf8");
    } catch (cause) {
      const isGone = errnoOf(cause) === "ENOENT";
      // Beside the store it is gone for good; elsewhere its file system may be mounted later.
      if (isGone && dirname(path) === this.#rootDir) throw new PicoletError("corrupt", `there is no ${path}`);
      throw isGone ? unavailable(`there is no ${path}`) : unavailable(`cannot read ${path}`, cause);
    }
    return keyOf(Buffer.from(text, "base64"), path);
  }

  hasMoved({ path }: Extract<ProviderRecord, { kind: "file" }>): boolean {
    return path !== this.#recorded;
  }

  discard(record: Extract<ProviderRecord, { kind: "file" }>): void {
    const path = resolve(this.#rootDir, record.path);
    for (const suffix of ["", LOST]) {
      if (existsSync(path + suffix))
        writeFileSync(path + suffix, Buffer.alloc(KEY_BYTES * 2), { flag: "r+", flush: true });
      rmSync(path + suffix, { force: true });
    }
  }

  /** A file beside the store goes where that goes. */
  get #recorded(): string {
    return dirname(this.#path) === this.#rootDir ? basename(this.#path) : this.#path;
  }
}

function keyOf(bytes: Buffer, origin: string): Buffer {
  if (bytes.length === KEY_BYTES) return bytes;
  throw new PicoletError(
    "corrupt",
    `cannot use the key that ${origin} gave: ${bytes.length} bytes are not ${KEY_BYTES}`,
  );
}

const unavailable = (message: string, cause?: unknown): PicoletError =>
  new PicoletError("unavailable", message, { cause, retryable: true });
