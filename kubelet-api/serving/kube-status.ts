/** Kubernetes' Status as the answer to a request that failed. */

const REASONS: Readonly<Record<number, string>> = {
  ...{ 400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Gone" },
  ...{ 422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 502: "InternalError" },
  ...{ 503: "ServiceUnavailable", 504: "Timeout" },
};

export const kubeStatus = (code: number, message: string) => ({
  ...{ kind: "Status", apiVersion: "v1", metadata: {}, status: "Failure" },
  message: message === "" ? `the kubelet answered with ${code}` : message,
  reason: REASONS[code] ?? "InternalError",
  code,
});
