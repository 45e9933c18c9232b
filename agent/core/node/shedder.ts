/** A part of the agent that can do with less memory for a while. What it drops comes back as it is used. */
export interface Shedder {
  readonly name: string;
  /** At once, and without failing. */
  shed(): void;
}
