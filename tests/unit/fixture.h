/* As suite.h, for tests that share a set-up. */
#ifndef TESTS_UNIT_FIXTURE_H
#define TESTS_UNIT_FIXTURE_H

#include <check.h>

/* main() of a test program: setup and teardown run in the test's own process, around each test. */
#define SUITE_MAIN_FIXTURE(suite, seconds, setup, teardown, ...)                       \
	int main(void)                                                                 \
	{                                                                              \
		const TTest *const tests[] = { __VA_ARGS__ };                          \
		TCase *tcase = tcase_create(suite);                                    \
		Suite *s = suite_create(suite);                                        \
		SRunner *runner = srunner_create(s);                                   \
		int failed;                                                            \
                                                                                       \
		tcase_set_timeout(tcase, seconds);                                     \
		tcase_add_checked_fixture(tcase, setup, teardown);                     \
		for (unsigned i = 0; i < sizeof(tests) / sizeof(*tests); i++)          \
			tcase_add_test(tcase, tests[i]);                               \
		suite_add_tcase(s, tcase);                                             \
		srunner_run_all(runner, CK_ENV);                                       \
		failed = srunner_ntests_failed(runner);                                \
		srunner_free(runner);                                                  \
		return failed != 0;                                                    \
	}

#endif
