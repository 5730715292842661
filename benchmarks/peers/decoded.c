/* Counts the frames that FFmpeg's decoders hand over, in every process that preloads this library.
 *
 * COUNTER is the path of a file of eight bytes, which all these processes map. Each package brings a libavcodec of its
 * own, so that the function that is called is looked up in the libraries of whoever calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

typedef int receive_frame(void *, void *);

static _Atomic unsigned long long *counter = MAP_FAILED;

__attribute__((constructor)) static void open_counter(void)
{
    int file = open(COUNTER, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        counter = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
}

int avcodec_receive_frame(void *context, void *frame)
{
    static _Thread_local void *last_caller;
    static _Thread_local receive_frame *real;
    void *caller = __builtin_return_address(0);
    if (caller != last_caller) {
        Dl_info found;
        void *library = dladdr(caller, &found) ? dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        real = library ? (receive_frame *)dlsym(library, "avcodec_receive_frame") : NULL;
        last_caller = caller;
    }
    if (!real)
        return -1;
    int result = real(context, frame);
    if (result == 0 && counter != MAP_FAILED)
        atomic_fetch_add(counter, 1);
    return result;
}
