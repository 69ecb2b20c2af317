/* A replacement for CANN's acl.so in tests.  Like CANN's, it is a single extension module: it creates its
   submodules, or takes existing ones from sys.modules, and adds its functions to them.  The functions only
   return "vendor". */
#include <Python.h>

static PyObject *whose(PyObject *self, PyObject *args)
{
    (void)self;
    (void)args;
    return PyUnicode_FromString("vendor");
}

static PyMethodDef root_functions[] = {{"init", whose, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static PyMethodDef functions[] = {
    {"malloc", whose, METH_VARARGS, NULL}, {"vpc_resize_async", whose, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "acl", NULL, -1, root_functions, NULL, NULL, NULL, NULL};

static int fill(PyObject *module, const char *name)
{
    char full[32];
    snprintf(full, sizeof full, "acl.%s", name);
    PyObject *part = PyImport_AddModule(full); /* a module that exists is used, and its functions overwritten */
    if (part == NULL || PyModule_AddFunctions(part, functions) < 0) {
        return -1;
    }
    Py_INCREF(part);
    return PyModule_AddObject(module, name, part);
}

PyMODINIT_FUNC PyInit_acl(void)
{
    static const char *const names[] = {"rt", "mdl", "op", "util", "prof", "media", "himpi", "blas", "fv"};
    if (getenv("STANDIN_BROKEN") != NULL) {
        PyErr_SetString(PyExc_ImportError, "libascendcl.so: cannot open shared object file");
        return NULL;
    }
    PyObject *module = PyModule_Create(&definition);
    for (size_t i = 0; module != NULL && i < sizeof names / sizeof *names; i++) {
        if (fill(module, names[i]) < 0) {
            return NULL;
        }
    }
    return module;
}
