/** A certificate and its key, as the agent's file of them. */
export class MemoryPairFile {
  text: string | undefined;

  read(): string | undefined {
    return this.text;
  }

  write(text: string): void {
    this.text = text;
  }

  remove(): void {
    this.text = undefined;
  }
}
