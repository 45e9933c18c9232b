import { type Attributes, type AuthorizationDecision, type Authorizer, MASTERS } from "./attributes.ts";

/** `system:masters` may do everything; for the others the first authorizer that allows it decides. */
export class UnionAuthorizer implements Authorizer {
  readonly #authorizers: readonly Authorizer[];

  constructor(authorizers: readonly Authorizer[]) {
    this.#authorizers = authorizers;
  }

  authorize(attributes: Attributes): AuthorizationDecision {
    if (attributes.user.groups.includes(MASTERS)) return { kind: "allowed" };
    const reasons: string[] = [];
    for (const authorizer of this.#authorizers) {
      const decision = authorizer.authorize(attributes);
      if (decision.kind === "allowed") return decision;
      if (decision.reason !== "") reasons.push(decision.reason);
    }
    return { kind: "no-opinion", reason: reasons.join(", ") };
  }
}

const HEALTH_PATHS: ReadonlySet<string> = new Set(["/healthz", "/livez", "/readyz"]);

/** Allows everyone to read the health paths, without any role. */
export class HealthAuthorizer implements Authorizer {
  authorize(attributes: Attributes): AuthorizationDecision {
    const isHealth = attributes.kind === "path" && attributes.verb === "get" && HEALTH_PATHS.has(attributes.path);
    return isHealth ? { kind: "allowed" } : { kind: "no-opinion", reason: "" };
  }
}
