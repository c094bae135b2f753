// A shared library, and no plugin.
extern "C" int trainrun_test_answer() { return 42; }
