import type { KubeClient, ResourceType } from "@picolet/hub-core/kube-client/kube-client.ts";
import type {
  AccessQuestion,
  KubeletUser,
  PathQuestion,
  ResourceQuestion,
  Reviews,
} from "@picolet/kubelet-api/serving/kubelet-access.ts";

const TOKEN_REVIEWS: ResourceType = {
  group: "authentication.k8s.io",
  version: "v1",
  plural: "tokenreviews",
  kind: "TokenReview",
  namespaced: false,
};
const ACCESS_REVIEWS: ResourceType = {
  group: "authorization.k8s.io",
  version: "v1",
  plural: "subjectaccessreviews",
  kind: "SubjectAccessReview",
  namespaced: false,
};
const NO_NAME = { namespace: "", name: "" };

interface TokenReviewStatus {
  readonly authenticated?: boolean;
  readonly user?: {
    readonly username?: string;
    readonly groups?: readonly string[];
    readonly extra?: KubeletUser["extra"];
  };
}

type Question = AccessQuestion | PathQuestion | ResourceQuestion;

function attributesOf(question: Question): Readonly<Record<string, unknown>> {
  if ("path" in question) return { nonResourceAttributes: question };
  if ("resource" in question) return { resourceAttributes: question };
  const { verb, node, subresource } = question;
  return { resourceAttributes: { verb, version: "v1", resource: "nodes", subresource, name: node } };
}

/** Asks Kubernetes who may use the hub's endpoints, as the kubelet's webhook modes do. */
export class KubernetesReviews implements Reviews<Question> {
  readonly #client: KubeClient;

  constructor(components: { readonly client: KubeClient }) {
    this.#client = components.client;
  }

  async userOfToken(token: string, signal: AbortSignal): Promise<KubeletUser | undefined> {
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "TokenReview", metadata: {}, spec: { token } };
    const answer = await this.#client.create(TOKEN_REVIEWS, NO_NAME, review, {}, signal);
    const { authenticated, user } = (answer.status ?? {}) as TokenReviewStatus;
    if (authenticated !== true || user?.username === undefined) return undefined;
    return { name: user.username, groups: user.groups ?? [], ...(user.extra !== undefined && { extra: user.extra }) };
  }

  async allows(user: KubeletUser, question: Question, signal: AbortSignal): Promise<boolean> {
    const review = {
      apiVersion: "authorization.k8s.io/v1",
      kind: "SubjectAccessReview",
      metadata: {},
      spec: {
        user: user.name,
        groups: user.groups,
        ...(user.extra !== undefined && { extra: user.extra }),
        ...attributesOf(question),
      },
    };
    const answer = await this.#client.create(ACCESS_REVIEWS, NO_NAME, review, {}, signal);
    return (answer.status as { readonly allowed?: boolean } | undefined)?.allowed === true;
  }
}
