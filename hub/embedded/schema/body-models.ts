/** Kinds of bodies that are no resource's own, and the models that describe them. */
export const BODY_MODELS: Readonly<Record<string, string>> = {
  Binding: "V1Binding",
  DeleteOptions: "V1DeleteOptions",
  Eviction: "V1Eviction",
  TokenRequest: "AuthenticationV1TokenRequest",
};
