/** What a test does with a machine that has systemd, whether its kernel is emulated or this machine's. */
export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  /** 128 and the signal's number where a signal ended it. */
  readonly exitCode: number;
}

export interface RunOptions {
  /** Default two minutes; then the command is killed and the call fails. */
  readonly timeoutMs?: number;
  readonly input?: string | Uint8Array;
}

/** A command under way. */
export interface RunningCommand {
  /** Resolves with the exit code; rejects when the machine is gone. */
  readonly ended: Promise<number>;
  /** SIGKILL, with everything it has started that is of its session. */
  kill(): void;
}

export interface BoardMachine {
  /** Runs a line of shell as root. */
  run(line: string, options?: RunOptions): Promise<CommandResult>;
  /** @returns its standard output. @throws unless it ends with 0 */
  output(line: string, options?: RunOptions): Promise<string>;
  /** Starts a line of shell and hands its output on as it comes. */
  command(line: string, onOutput?: (text: string) => void): Promise<RunningCommand>;
  /** Written beside and renamed over, with the folders above it. */
  upload(path: string, content: string | Uint8Array, mode?: number): Promise<void>;
  /** A unix socket of this machine whose connections arrive at that machine's. */
  forward(path: string): Promise<string>;
  /** What it has said while it booted, for the report of a failure. */
  readonly console: string;
}

/** Generous: an emulated processor beside other tests has been seen ten times slower than on a quiet machine. */
export const COMMAND_LIMIT_MS = 120_000;

/** As one word of a shell's. */
export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** The line of shell that writes its input to a file: beside it, and renamed over. */
export function uploadLine(path: string, mode: number): string {
  const [folder, name] = [path.slice(0, path.lastIndexOf("/")), path.slice(path.lastIndexOf("/") + 1)];
  const beside = quoted(`${folder}/.${name}.new`);
  return `mkdir -p ${quoted(`${folder}/`)} && cat > ${beside} && chmod ${mode.toString(8)} ${beside} && mv ${beside} ${quoted(path)}`;
}
