// Calls what is not there, as a plugin built for another trainrun may.
extern "C" void trainrun_test_function_that_is_gone();
extern "C" void trainrun_test_caller() { trainrun_test_function_that_is_gone(); }
