/* Stands in for the kernel's driver of one webcam, /dev/video42, in a process that preloads it: 640x480, YUYV, 30 a
   second. With WEBCAM_STALLS=n it sends nothing after n frames; with WEBCAM_GOES=n it is unplugged then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WIDTH = 640, HEIGHT = 480, BYTES = WIDTH * HEIGHT * 2, BUFFERS = 4 };
static int device = -1, queue[BUFFERS], taken, put, frames;
static unsigned char *memory;

static int is_after(const char *name) { return getenv(name) && frames >= atoi(getenv(name)); }

static int open_device(void) {
    device = memfd_create("webcam", MFD_CLOEXEC);
    if (ftruncate(device, BYTES * BUFFERS)) return -1;
    memory = mmap(NULL, BYTES * BUFFERS, PROT_READ | PROT_WRITE, MAP_SHARED, device, 0);
    return device;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list rest; va_start(rest, flags); int mode = va_arg(rest, int); va_end(rest); \
        if (!strcmp(path, "/dev/video42")) return open_device(); \
        return ((int (*)(const char *, int, ...))dlsym(RTLD_NEXT, #name))(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

static int take(struct v4l2_buffer *buffer) {
    while (is_after("WEBCAM_STALLS")) pause();
    if (is_after("WEBCAM_GOES")) { errno = ENODEV; return -1; }
    usleep(1000000 / 30);
    int place = queue[taken++ % BUFFERS];
    memset(memory + place * BYTES, 16 + frames++ * 8 % 200, BYTES);
    buffer->index = place, buffer->bytesused = BYTES;
    return 0;
}

int ioctl(int file, unsigned long request, ...) {
    va_list rest; va_start(rest, request); void *what = va_arg(rest, void *); va_end(rest);
    if (file != device) return ((int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl"))(file, request, what);
    struct v4l2_buffer *buffer = what;
    struct v4l2_pix_format *format = &((struct v4l2_format *)what)->fmt.pix;
    switch (request) {
    case VIDIOC_QUERYCAP:
        ((struct v4l2_capability *)what)->capabilities = V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_STREAMING; return 0;
    case VIDIOC_S_FMT:
        if (format->pixelformat != V4L2_PIX_FMT_YUYV) { errno = EINVAL; return -1; } /* fall through */
    case VIDIOC_G_FMT:
        format->width = WIDTH, format->height = HEIGHT, format->pixelformat = V4L2_PIX_FMT_YUYV;
        format->sizeimage = BYTES, format->bytesperline = WIDTH * 2, format->field = V4L2_FIELD_NONE; return 0;
    case VIDIOC_REQBUFS: ((struct v4l2_requestbuffers *)what)->count = BUFFERS; return 0;
    case VIDIOC_QUERYBUF: buffer->length = BYTES, buffer->m.offset = buffer->index * BYTES; return 0;
    case VIDIOC_QBUF: queue[put++ % BUFFERS] = buffer->index; return 0;
    case VIDIOC_DQBUF: return take(buffer);
    case VIDIOC_G_INPUT: *(int *)what = 0; return 0;
    case VIDIOC_ENUMINPUT: case VIDIOC_G_PARM: case VIDIOC_STREAMON: case VIDIOC_STREAMOFF: return 0;
    default: errno = ENOTTY; return -1;
    }
}
