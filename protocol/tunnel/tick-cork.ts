/** The part of a stream of Node (`node:stream`, Writable) that holds writes back. */
export interface Corkable {
  cork(): void;
  uncork(): void;
}

/**
 * Holds what is written to a socket until the current task's promises have run, so that frames sent together are one
 * TLS record and one TCP segment: 22 and 52 bytes less for each but the first.
 */
export class TickCork {
  readonly #socket: Corkable;
  #isHeld = false;
  readonly #release = (): void => {
    this.#isHeld = false;
    this.#socket.uncork();
  };

  constructor(socket: Corkable) {
    this.#socket = socket;
  }

  /** Call it before each write. */
  hold(): void {
    if (this.#isHeld) return;
    this.#isHeld = true;
    this.#socket.cork();
    queueMicrotask(this.#release);
  }
}
