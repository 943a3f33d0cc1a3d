/*
 * `heddle check`: can this host run guests, and how well?
 */
#ifndef VMM_HOSTCHECK_H
#define VMM_HOSTCHECK_H

/* argv[0] is "check".  Exit code: 0 = stock kernels run here; 1 = no guest runs; 2 = KVM works but
 * interprets kernel code, so only payload guests make sense; 125 = bad option. */
int hostcheck_main(int argc, char **argv);

#endif
