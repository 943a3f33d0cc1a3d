/* One Check program = one suite with one list of tests. */
#ifndef TESTS_UNIT_SUITE_H
#define TESTS_UNIT_SUITE_H

#include <check.h>

/* main() of a test program: every test may take `seconds`. */
#define SUITE_MAIN(suite, seconds, ...)                                                \
	int main(void)                                                                 \
	{                                                                              \
		const TTest *const tests[] = { __VA_ARGS__ };                          \
		TCase *tcase = tcase_create(suite);                                    \
		Suite *s = suite_create(suite);                                        \
		SRunner *r = srunner_create(s);                                        \
		int failed;                                                            \
                                                                                       \
		tcase_set_timeout(tcase, seconds);                                     \
		for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++)          \
			tcase_add_test(tcase, tests[i]);                               \
		suite_add_tcase(s, tcase);                                             \
		srunner_run_all(r, CK_ENV);                                            \
		failed = srunner_ntests_failed(r);                                     \
		srunner_free(r);                                                       \
		return failed != 0;                                                    \
	}

#endif
