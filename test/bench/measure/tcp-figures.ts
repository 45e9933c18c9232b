/** The kernel's figures of this machine's TCP connections. Source: tcp(7), struct tcp_info, as ss(8) prints it. */
import { execFileSync } from "node:child_process";

/** IPv4 20, TCP 20, and 12 for timestamps, which Linux has on by default; added to each segment, loopback or not. */
const HEADER_BYTES = 20 + 20 + 12;

export interface TcpBytes {
  /** Both directions: payload, what was sent again, and the headers of every segment, bare acknowledgements too. */
  readonly wireBytes: number;
  readonly segments: number;
}

/** Reads the one connection from this machine to `port` on loopback, since it was opened. */
export function tcpBytesTo(port: number): TcpBytes {
  const text = execFileSync("ss", ["-tinH", "state", "established", `dst 127.0.0.1:${port}`], { encoding: "utf8" });
  const connections = text.split(/\n(?=\S)/).filter((each) => each.trim() !== "");
  const [only = ""] = connections;
  if (connections.length !== 1) throw new Error(`there are ${connections.length} connections to port ${port}`);
  // A field that is zero is left out.
  const field = (name: string): number => Number(new RegExp(`\\b${name}:(\\d+)`).exec(only)?.[1] ?? 0);
  const segments = field("segs_out") + field("segs_in");
  return { wireBytes: field("bytes_sent") + field("bytes_received") + segments * HEADER_BYTES, segments };
}
