/**
 * The two requests of a page that change something: `POST pods/NAMESPACE/NAME/restart` and `DELETE pods/NAMESPACE/NAME`
 * below the path of its data, without a query and without a body. The answer is a Status.
 */

export interface PodAction {
  readonly verb: "restart" | "delete";
  readonly namespace: string;
  readonly name: string;
}

/** The right that an action needs. Kubernetes has no verb for a restart: a user who may delete a pod may restart it. */
export const POD_ACTION_RIGHT = { verb: "delete", group: "", version: "v1", resource: "pods" } as const;

const MAX_NAMESPACE_LENGTH = 63;
const MAX_NAME_LENGTH = 253;
const LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?";
/** Lower-case DNS names alone, never encoded: no segment of such a path can lead elsewhere. */
const PATH = new RegExp(`^pods/(${LABEL})/(${LABEL}(?:\\.${LABEL})*)(/restart)?$`);
const MAX_PATH_LENGTH = "pods///restart".length + MAX_NAMESPACE_LENGTH + MAX_NAME_LENGTH;

/** @param path behind the path of the data. @returns undefined: the request is none of the two */
export function podActionOf(method: string | undefined, path: string): PodAction | undefined {
  if (path.length > MAX_PATH_LENGTH) return undefined;
  const [, namespace = "", name = "", restart] = PATH.exec(path) ?? [];
  if (name === "" || namespace.length > MAX_NAMESPACE_LENGTH || name.length > MAX_NAME_LENGTH) return undefined;
  if (method === "POST" && restart !== undefined) return { verb: "restart", namespace, name };
  if (method === "DELETE" && restart === undefined) return { verb: "delete", namespace, name };
  return undefined;
}

/** The request of an action; its path is behind the path of the data. */
export const podActionRequest = ({ verb, namespace, name }: PodAction) =>
  verb === "restart"
    ? ({ method: "POST", path: `pods/${namespace}/${name}/restart` } as const)
    : ({ method: "DELETE", path: `pods/${namespace}/${name}` } as const);

/** Kubernetes' Status, as far as a page reads it. @param code of HTTP. @param message a sentence */
export const pageStatus = (code: number, message: string) => ({
  ...{ kind: "Status", apiVersion: "v1", metadata: {} },
  ...{ status: code < FIRST_FAILURE ? "Success" : "Failure", message, code },
});

const FIRST_FAILURE = 400;

/** Why a method other than GET and HEAD is refused. */
export const READS_ONLY =
  "the page only reads, and restarts or deletes one pod: POST pods/NAMESPACE/NAME/restart, DELETE pods/NAMESPACE/NAME";

interface RequestHead {
  readonly "content-length"?: string | undefined;
  readonly "transfer-encoding"?: string | undefined;
}

/** True for a request with a body, which an action never has. */
export const hasBody = (headers: RequestHead): boolean =>
  headers["transfer-encoding"] !== undefined || (headers["content-length"] ?? "0") !== "0";
