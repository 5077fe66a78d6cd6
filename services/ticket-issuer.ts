/** BETTER_COMPUTE_TICKET_ISSUER, as the api and the signing worker read it: both must name the same, or nodes take no ticket. */
import { z } from 'zod';
import { parseTicketIssuer } from '../pki/exec/index.ts';

export const ticketIssuerField = z
  .string()
  .refine(isOrigin, "must be exactly the origin of the api's address, such as https://compute.example.com; http on loopback alone")
  .optional();

function isOrigin(text: string): boolean {
  try {
    return parseTicketIssuer(text) === text;
  } catch {
    return false;
  }
}
