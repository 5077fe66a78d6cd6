/** What a payload becomes that no converter could read. Its one field is no field of any message, so every parser refuses it. */
export class Undecodable {
  readonly undecodable: string;

  constructor(why: string) {
    this.undecodable = why;
  }
}
