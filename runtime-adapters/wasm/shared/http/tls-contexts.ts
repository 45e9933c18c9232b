/**
 * The CAs that https requests trust: Node's own and those of the node's configuration, in one OpenSSL context for all
 * connections of a process. It is made with the first request, because it takes 0.2 MiB beside `node:tls`.
 */
import type { SecureContext } from "node:tls";

export class TlsContexts {
  /** As many as containers were started with different files; in a process of one container there is one. */
  readonly #contexts = new Map<string, SecureContext>();

  /** @param authorities PEM, trusted besides */
  of(authorities = ""): SecureContext {
    const known = this.#contexts.get(authorities);
    if (known !== undefined) return known;
    const made = process.getBuiltinModule("node:tls").createSecureContext();
    // The option `ca` would stand for Node's own: these would have to be given again, as PEM, for 0.8 MiB and ten times
    // the time.
    if (authorities !== "") made.context.addCACert(authorities);
    this.#contexts.set(authorities, made);
    return made;
  }
}
