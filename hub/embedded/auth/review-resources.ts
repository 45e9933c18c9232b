/** Reviews: questions to the authorizer and the authenticator, asked by creating an object that is not kept. */
import type { ApiObject, ResourceDefinition, StrategyContext, UserInfo } from "../api/resource-definition.ts";
import { badRequest } from "../api/status-error.ts";
import type { Attributes, Authorizer } from "./attributes.ts";
import type { Authenticator } from "./authenticator.ts";
import { type RbacAuthorizer, textsIn } from "./rbac.ts";

interface Fields {
  readonly [field: string]: unknown;
}

/** Bounds the rules in one answer, 10 ms: a user may be bound to many roles. The rest is left out, as `incomplete`. */
const MAX_RULE_TEXTS = 32_768;

export interface ReviewPorts {
  readonly authorizer: Authorizer;
  readonly rbac: RbacAuthorizer;
  readonly authenticator: Pick<Authenticator, "authenticateToken">;
  /** The audience of this API. */
  readonly issuer: string;
  /** @throws StatusError 429 when the user asks for more than it may */
  readonly admit: (user: UserInfo) => void;
}

const asFields = (value: unknown): Fields => (typeof value === "object" && value !== null ? (value as Fields) : {});
const asText = (value: unknown): string => (typeof value === "string" ? value : "");
const asTexts = (value: unknown): string[] =>
  Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];

type Answer = (object: ApiObject, context: StrategyContext) => ApiObject | Promise<ApiObject>;

const reviewOf = (
  ports: () => ReviewPorts,
  group: string,
  kind: string,
  namespaced: boolean,
  answer: Answer,
): ResourceDefinition => ({
  group,
  version: "v1",
  plural: `${kind.toLowerCase()}s`,
  singular: kind.toLowerCase(),
  kind,
  namespaced,
  model: `V1${kind}`,
  verbs: ["create"],
  strategy: {},
  answer: async (object, context) => {
    ports().admit(context.user);
    const answered = await answer(object, context);
    const { name: _none, ...metadata } = answered.metadata;
    return { ...answered, metadata: { ...metadata } as ApiObject["metadata"] };
  },
});

/** The models of them all. */
export const reviewModels = (): readonly string[] =>
  reviewResources(() => {
    throw new TypeError("nothing is asked while models are listed");
  }).map(({ model }) => model);

/** @param ports asked for when a review is answered */
export function reviewResources(ports: () => ReviewPorts): readonly ResourceDefinition[] {
  const review = (group: string, kind: string, namespaced: boolean, answer: Answer): ResourceDefinition =>
    reviewOf(ports, group, kind, namespaced, answer);
  const authorization = "authorization.k8s.io";
  const authentication = "authentication.k8s.io";
  const ask = (attributes: Attributes): Fields => {
    const decision = ports().authorizer.authorize(attributes);
    return decision.kind === "allowed"
      ? { allowed: true }
      : { allowed: false, ...(decision.reason === "" ? {} : { reason: decision.reason }) };
  };
  const withStatus = (object: ApiObject, status: Fields): ApiObject => ({ ...object, status });
  const subjectReview: Answer = (object) => withStatus(object, ask(attributesOf(object, subjectOf(object))));
  return [
    review(authorization, "SelfSubjectAccessReview", false, (object, { user }) =>
      withStatus(object, ask(attributesOf(object, user))),
    ),
    review(authorization, "SelfSubjectRulesReview", false, (object, { user }) =>
      withStatus(object, rulesReview(ports().rbac, object, user)),
    ),
    review(authorization, "SubjectAccessReview", false, subjectReview),
    review(authorization, "LocalSubjectAccessReview", true, subjectReview),
    review(authentication, "SelfSubjectReview", false, (object, { user }) =>
      withStatus(object, { userInfo: userOf(user) }),
    ),
    review(authentication, "TokenReview", false, async (object) =>
      withStatus(object, await tokenReview(ports(), object)),
    ),
  ];
}

const userOf = ({ name, uid, groups, extra }: UserInfo): Fields => ({
  username: name,
  ...(uid === "" ? {} : { uid }),
  groups,
  ...(Object.keys(extra).length === 0 ? {} : { extra }),
});

function subjectOf(object: ApiObject): UserInfo {
  const spec = asFields(object.spec);
  const extra = Object.entries(asFields(spec.extra)).map(([key, values]): [string, string[]] => [key, asTexts(values)]);
  const user = { name: asText(spec.user), uid: asText(spec.uid), groups: asTexts(spec.groups) };
  if (user.name === "" && user.groups.length === 0) throw badRequest("at least one of user or group must be specified");
  return { ...user, extra: Object.fromEntries(extra) };
}

function attributesOf(object: ApiObject, user: UserInfo): Attributes {
  const spec = asFields(object.spec);
  if (spec.nonResourceAttributes !== undefined) {
    const { path, verb } = asFields(spec.nonResourceAttributes);
    return { kind: "path", user, verb: asText(verb), path: asText(path) };
  }
  if (spec.resourceAttributes === undefined) {
    throw badRequest("exactly one of nonResourceAttributes or resourceAttributes must be specified");
  }
  const { verb, group, version, resource, subresource, namespace, name } = asFields(spec.resourceAttributes);
  return {
    ...{ kind: "resource", user, verb: asText(verb), group: asText(group), version: asText(version) },
    ...{ plural: asText(resource), subresource: asText(subresource), namespace: asText(namespace), name: asText(name) },
  };
}

function rulesReview(rbac: RbacAuthorizer, object: ApiObject, user: UserInfo): Fields {
  const namespace = asText(asFields(object.spec).namespace);
  if (namespace === "") throw badRequest("no namespace on request");
  const everything = { verbs: ["*"], apiGroups: ["*"], resources: ["*"] };
  const isMaster = user.groups.includes("system:masters");
  const held = rbac.rulesOf(user, namespace);
  let texts = 0;
  const rules = held.filter((rule) => {
    texts += textsIn([rule]);
    return texts <= MAX_RULE_TEXTS;
  });
  const resourceRules = rules.filter(({ resources = [] }) => resources.length > 0);
  const nonResourceRules = rules.filter(({ nonResourceURLs = [] }) => nonResourceURLs.length > 0);
  return {
    resourceRules: isMaster ? [everything, ...resourceRules] : resourceRules,
    nonResourceRules: isMaster ? [{ verbs: ["*"], nonResourceURLs: ["*"] }, ...nonResourceRules] : nonResourceRules,
    incomplete: rules.length < held.length,
  };
}

async function tokenReview({ authenticator, issuer }: ReviewPorts, object: ApiObject): Promise<Fields> {
  const { token, audiences } = asFields(object.spec);
  const wanted = asTexts(audiences);
  if (asText(token) === "") throw badRequest("token is required for TokenReview in authentication");
  const found = await authenticator.authenticateToken(asText(token), wanted.length === 0 ? [issuer] : wanted);
  if (found === undefined) return { authenticated: false, user: {}, error: "invalid bearer token" };
  return { authenticated: true, user: userOf(found.user), audiences: found.audiences };
}
