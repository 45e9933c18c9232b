import { resourceName } from "../api/resource-definition.ts";
import { StatusError } from "../api/status-error.ts";
import type { Attributes, Authorizer } from "./attributes.ts";

/** @throws StatusError 403 in Kubernetes' words */
export function requireAccess(authorizer: Authorizer, attributes: Attributes): void {
  const decision = authorizer.authorize(attributes);
  if (decision.kind === "allowed") return;
  const because = decision.reason === "" ? "" : `: ${decision.reason}`;
  const who = `User ${JSON.stringify(attributes.user.name)}`;
  if (attributes.kind === "path") {
    throw new StatusError(
      "Forbidden",
      `forbidden: ${who} cannot ${attributes.verb} path ${JSON.stringify(attributes.path)}${because}`,
      {},
    );
  }
  const { group, plural, subresource, namespace, name, verb } = attributes;
  const resource = subresource === "" ? plural : `${plural}/${subresource}`;
  const where = namespace === "" ? "at the cluster scope" : `in the namespace ${JSON.stringify(namespace)}`;
  const what =
    name === ""
      ? `${resourceName({ group, plural })} is`
      : `${resourceName({ group, plural })} ${JSON.stringify(name)} is`;
  throw new StatusError(
    "Forbidden",
    `${what} forbidden: ${who} cannot ${verb} resource ${JSON.stringify(resource)} in API group ${JSON.stringify(group)} ${where}${because}`,
    { ...(name === "" ? {} : { name }), ...(group === "" ? {} : { group }), kind: plural },
  );
}
