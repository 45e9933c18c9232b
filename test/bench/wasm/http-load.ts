/** A client of many connections that asks the same again and again, and costs less than the server. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";

export interface HttpLoad {
  readonly port: number;
  readonly path: string;
  readonly connections: number;
  /** Requests of all connections together. */
  readonly requests: number;
}

const HOST = "127.0.0.1";

/** @returns requests each second; every response has to be as long as the first. */
export async function httpLoad({ port, path, connections, requests }: HttpLoad): Promise<number> {
  const question = `GET ${path} HTTP/1.1\r\nhost: ${HOST}:${port}\r\n\r\n`;
  const length = await responseLength(port, question);
  const sockets = await Promise.all(Array.from({ length: connections }, () => opened(port)));
  const each = Math.ceil(requests / connections);
  const begun = performance.now();
  await Promise.all(sockets.map((socket) => asked(socket, question, length, each)));
  const seconds = (performance.now() - begun) / 1000;
  return (each * connections) / seconds;
}

async function opened(port: number): Promise<Socket> {
  const socket = connect({ port, host: HOST, noDelay: true });
  await once(socket, "connect");
  return socket;
}

async function responseLength(port: number, question: string): Promise<number> {
  const socket = await opened(port);
  socket.write(question);
  let said = "";
  for await (const chunk of socket.setEncoding("latin1") as AsyncIterable<string>) {
    said += chunk;
    if (!said.startsWith("HTTP/1.1 200 ")) throw new Error(`the server says ${said}`);
    const [, head = "", length] = /^([\s\S]*?content-length: (\d+)[\s\S]*?\r\n\r\n)/i.exec(said) ?? [];
    if (length !== undefined && said.length >= head.length + Number(length)) return head.length + Number(length);
  }
  throw new Error("the server hung up");
}

function asked(socket: Socket, question: string, length: number, times: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = times;
    let missing = length;
    socket.on("data", (chunk: Buffer) => {
      missing -= chunk.length;
      if (missing > 0) return;
      if (missing < 0) reject(new Error("the server says more than it was asked for"));
      missing = length;
      left -= 1;
      if (left > 0) socket.write(question);
      else socket.destroy();
    });
    socket.once("error", reject);
    socket.once("close", () => (left > 0 ? reject(new Error("the server hung up")) : resolve()));
    socket.write(question);
  });
}
