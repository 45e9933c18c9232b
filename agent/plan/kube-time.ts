/** A time as Kubernetes writes it: RFC 3339 with whole seconds, `2026-01-31T12:00:00Z`. */
export const kubeTime = (epochMs: number): string => `${new Date(epochMs).toISOString().slice(0, 19)}Z`;
