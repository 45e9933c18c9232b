/** A hub without a hub: mutual TLS 1.3 and `ws`, and nothing kept of a connection. What any hub's memory stands on. */
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { WebSocketServer } from "ws";

interface Pair {
  readonly ca: string;
  readonly certificate: string;
  readonly privateKey: string;
}

process.once("message", ({ ca, certificate, privateKey }: Pair) => {
  const server = createServer({
    ...{ ca, cert: certificate, key: privateKey },
    ...{ minVersion: "TLSv1.3", requestCert: true, rejectUnauthorized: false },
    ALPNCallback: () => "http/1.1",
  });
  const sockets = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: false });
  sockets.on("connection", (socket) => socket.on("message", (data) => socket.send(data)));
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as AddressInfo).port));
  // The process that started this one has ended.
  process.once("disconnect", () => process.exit(0));
});
