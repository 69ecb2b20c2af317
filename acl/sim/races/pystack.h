/* pystack.h: the calling thread's Python stack as text, read without the interpreter's lock.
 *
 * While a thread is in a call of C, its frames do not change, whether it has released the
 * interpreter's lock or not. The data read here (a frame's code object, its file, name and table
 * of lines) never changes. No reference is taken and nothing is allocated. It is compiled for one
 * version of Python, with that version's headers for the layout of frames.
 *
 * Thread rule: any thread; a thread without a Python state has no stack. */
#ifndef SIM_PYSTACK_H
#define SIM_PYSTACK_H

#include <Python.h>
#include <stdio.h>

#if PY_VERSION_HEX >= 0x030b0000
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include "internal/pycore_interpframe.h"
#else
#include "internal/pycore_frame.h"
#endif
typedef struct _PyInterpreterFrame PyStackFrame;
#else
#include "frameobject.h"
typedef PyFrameObject PyStackFrame;
#endif

enum { PYSTACK_FRAMES = 8 };

#if PY_VERSION_HEX >= 0x030b0000
static PyStackFrame *pystack_first(PyThreadState *state)
{
#if PY_VERSION_HEX >= 0x030d0000
    return state->current_frame;
#else
    return state->cframe->current_frame;
#endif
}

static PyStackFrame *pystack_next(PyStackFrame *frame)
{
    return frame->previous;
}

/* Returns the frame's code; NULL if it has none, because it only marks an entry into the interpreter. */
static PyCodeObject *pystack_code(PyStackFrame *frame)
{
#if PY_VERSION_HEX >= 0x030e0000
    PyObject *code = PyStackRef_AsPyObjectBorrow(frame->f_executable);
#elif PY_VERSION_HEX >= 0x030d0000
    PyObject *code = frame->f_executable;
#else
    PyObject *code = (PyObject *)frame->f_code;
#endif
    return code != NULL && PyCode_Check(code) ? (PyCodeObject *)code : NULL;
}

static int pystack_line(PyStackFrame *frame, PyCodeObject *code)
{
#if PY_VERSION_HEX >= 0x030d0000
    (void)code;
    return PyUnstable_InterpreterFrame_GetLine(frame);
#else
    return PyCode_Addr2Line(code, _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT));
#endif
}
#else
static PyStackFrame *pystack_first(PyThreadState *state)
{
    return state->frame;
}

static PyStackFrame *pystack_next(PyStackFrame *frame)
{
    return frame->f_back;
}

static PyCodeObject *pystack_code(PyStackFrame *frame)
{
    return frame->f_code;
}

static int pystack_line(PyStackFrame *frame, PyCodeObject *code)
{
    return PyCode_Addr2Line(code, frame->f_lasti * 2);
}
#endif

/* Appends a string; each character that is not ASCII becomes a question mark, because encoding it
 * would allocate. */
static size_t pystack_append(char *text, size_t used, size_t size, PyObject *string)
{
    Py_ssize_t length = PyUnicode_GET_LENGTH(string);
    for (Py_ssize_t i = 0; i < length && used + 1 < size; i++) {
        Py_UCS4 letter = PyUnicode_READ_CHAR(string, i);
        text[used++] = letter >= 0x20 && letter < 0x7f ? (char)letter : '?';
    }
    text[used] = '\0';
    return used;
}

static size_t pystack_write(char *text, size_t size)
{
    PyThreadState *state = Py_IsInitialized() ? PyGILState_GetThisThreadState() : NULL;
    PyStackFrame *frame = state == NULL ? NULL : pystack_first(state);
    size_t used = 0;
    for (int count = 0; frame != NULL && count < PYSTACK_FRAMES; frame = pystack_next(frame)) {
        PyCodeObject *code = pystack_code(frame);
        if (code == NULL || size - used < 256) {
            continue;
        }
        char line[32];
        snprintf(line, sizeof line, ":%d in ", pystack_line(frame, code));
        if (count++ != 0) {
            text[used++] = '\n';
        }
        used = pystack_append(text, used, size - 64, code->co_filename);
        for (const char *c = line; *c != '\0'; c++) {
            text[used++] = *c;
        }
        used = pystack_append(text, used, size, code->co_name);
    }
    return used;
}

#endif
