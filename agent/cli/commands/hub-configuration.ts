/** The hub as the agent's configuration names it: shared by `edgectl join` and the first boot of an image. */
import { PicoletError } from "@picolet/protocol/errors.ts";
import { KUBERNETES_YAML } from "@picolet/protocol/kubernetes/kubernetes-yaml.ts";
import { type Document, isMap, parseDocument } from "yaml";

/** The hub's, for boards. */
const DEFAULT_PORT = 10_270;

/**
 * `hub.example.com` → `https://hub.example.com:10270`; a URL without a port means 443, as in `hub.server`.
 * @throws `invalid` with what is wrong with it
 */
export function hubAddress(text: string): string {
  const hasScheme = /^[a-z]+:\/\//.test(text);
  let url: URL;
  try {
    url = new URL(hasScheme ? text : `https://${text}`);
  } catch {
    throw new PicoletError(
      "invalid",
      `"${text}" is no address of a hub: write hub.example.com, or https://hub.example.com:10270`,
    );
  }
  if (url.protocol !== "https:" && url.protocol !== "wss:")
    throw new PicoletError("invalid", `a hub is reached by https or wss, not by ${url.protocol.slice(0, -1)}`);
  const port = url.port || (hasScheme || /:443$/.test(text) ? "443" : DEFAULT_PORT);
  return `${url.protocol}//${url.hostname}:${port}`;
}

/**
 * A configuration to be changed with its comments; an empty one gets its kind.
 * @param path for the message
 * @throws `invalid` when it is no YAML mapping
 */
export function editableConfiguration(text: string, path: string): Document {
  // By the agent's rules, so that a text such as `yes` is written in quotes.
  const document = parseDocument(text, KUBERNETES_YAML);
  if (document.errors[0] !== undefined || !(document.contents === null || isMap(document.contents)))
    throw new PicoletError("invalid", `${path} is no YAML mapping: correct it first, or move it away`, {
      cause: document.errors[0],
    });
  if (document.contents === null) {
    document.set("apiVersion", "kubelet.config.k8s.io/v1beta1");
    document.set("kind", "KubeletConfiguration");
  }
  return document;
}
