/* Exchanges two names, as fast as the host can, until killed.  usage: swap A B */
#include <fcntl.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	while (renameat2(AT_FDCWD, argv[1], AT_FDCWD, argv[2], RENAME_EXCHANGE) == 0)
		;
	perror("swap");
	return 1;
}
